"""Tokens of items, item after item without padding, and their best cosines; without torch."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from jaxtyping import Float
from numpy.typing import NDArray

# Upper bound of the block of cosines (words x regions) in memory.
BLOCK_BYTES = 64 * 2**20


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
