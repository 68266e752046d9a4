"""Encoded photos and texts as arrays: what leaves the network, for indexes and for queries."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray


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
