"""Encoded photos and texts as arrays: what leaves the network, for indexes and for queries.

Also tokens of items, item after item without padding, and their best cosines. Without torch.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from jaxtyping import Float
from numpy.typing import NDArray

# Upper bound of the block of cosines (words x regions) in memory.
BLOCK_BYTES = 64 * 2**20


class Encoding(NamedTuple):
    """A batch of encoded photos or texts.

    Attributes:
        embedding: (batch, d_match) float32, L2-normalised; the vectors of the first stage.
        tokens: (batch, tokens, d_align) float32, L2-normalised; the regions or words of the second
            stage.
        mask: (batch, tokens) bool, True at real tokens.
    """

    embedding: NDArray[np.float32]
    tokens: NDArray[np.float32]
    mask: NDArray[np.bool_]

    @classmethod
    def of_item(cls, embedding: NDArray[np.float32], tokens: NDArray[np.float32]) -> Encoding:
        """Return a batch of one item.

        Args:
            embedding: (d_match,) float32, L2-normalised.
            tokens: (tokens, d_align) float32, L2-normalised; all of them are real.
        """
        return cls(embedding[None], tokens[None], np.ones((1, len(tokens)), dtype=np.bool_))

    @property
    def size(self) -> int:
        """Number of items."""
        return len(self.embedding)

    def rows(self, rows: NDArray[np.int64]) -> Encoding:
        """Take some items, in the order of their rows."""
        return Encoding(self.embedding[rows], self.tokens[rows], self.mask[rows])

    def item(self, row: int) -> Encoding:
        """Copy one item, without padding, so that it does not keep its batch in memory."""
        return Encoding.of_item(self.embedding[row].copy(), self.item_tokens(row))

    def item_tokens(self, row: int) -> NDArray[np.float32]:
        """Copy the real tokens of one item, (real, d_align)."""
        return self.tokens[row][self.mask[row]]

    def without_tokens(self) -> Encoding:
        """Leave out the tokens, which say nothing where the alignment was never trained."""
        return Encoding(self.embedding, self.tokens[:, :0], self.mask[:, :0])

    @staticmethod
    def concatenate(parts: Sequence[Encoding]) -> Encoding:
        """Join batches of different token counts; shorter ones are padded.

        Args:
            parts: Batches, at least one.

        Returns:
            One batch of all items, in order.
        """
        longest = max(part.mask.shape[1] for part in parts)
        missing = [(0, longest - part.mask.shape[1]) for part in parts]
        tokens = [
            np.pad(part.tokens, ((0, 0), after, (0, 0)))
            for part, after in zip(parts, missing, strict=True)
        ]
        masks = [
            np.pad(part.mask, ((0, 0), after)) for part, after in zip(parts, missing, strict=True)
        ]
        embeddings = np.concatenate([part.embedding for part in parts])
        return Encoding(embeddings, np.concatenate(tokens), np.concatenate(masks))


class TokenRows(NamedTuple):
    """Tokens of some items.

    Attributes:
        values: Tokens of all items, item after item.
        lengths: (items,) number of tokens of each item.
    """

    values: Float[np.ndarray, "tokens dim"]
    lengths: NDArray[np.int64]

    def blocks(self, most_tokens: int) -> list[TokenRows]:
        """Divide the items into blocks of at most so many tokens, or of one item."""
        ends = np.cumsum(self.lengths)
        blocks: list[TokenRows] = []
        start = 0
        while start < len(ends):
            first = int(ends[start] - self.lengths[start])
            end = max(start + 1, int(np.searchsorted(ends, first + most_tokens, side="right")))
            lengths = self.lengths[start:end]
            blocks.append(TokenRows(self.values[first : first + int(lengths.sum())], lengths))
            start = end
        return blocks


def sums_of_items(values: NDArray[np.float32], lengths: NDArray[np.int64]) -> NDArray[np.float32]:
    """Add up so many rows for each item; an item without rows has zeros."""
    sums = np.zeros((len(lengths), values.shape[1]), dtype=np.float32)
    filled = lengths > 0
    if filled.any():
        # `reduceat` accepts no empty segments.
        sums[filled] = np.add.reduceat(values, (np.cumsum(lengths) - lengths)[filled], axis=0)
    return sums


def best_cosines(
    words: NDArray[np.float32], photos: TokenRows
) -> Float[np.ndarray, "words photos"]:
    """Return for each word and photo the cosine with the best region, 0 without regions."""
    regions, lengths = photos
    cosines = words @ regions.T
    best = np.zeros((len(words), len(lengths)), dtype=np.float32)
    filled = lengths > 0
    if filled.any():
        starts = (np.cumsum(lengths) - lengths)[filled]
        best[:, filled] = np.maximum.reduceat(cosines, starts, axis=1)
    return best
