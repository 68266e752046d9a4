"""The second stage's tokens: ragged, compact, memory-mapped; only candidates are read.

tokens.npy    all items' tokens one after the other, float16 or int8
scales.npy    int8 only: float32, one a token; token = int8 values * scale
offsets.npy   int64; item i has the tokens offsets[i] to offsets[i + 1]
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from jaxtyping import Float
from numpy.typing import NDArray
from torch import Tensor

from aladin.errors import IndexCorruptError
from index.npy import map_npy
from index.settings import TokenDtype

TOKENS, SCALES, OFFSETS = "tokens.npy", "scales.npy", "offsets.npy"


class PackedTokens(NamedTuple):
    """Tokens in their stored form.

    Attributes:
        values: (tokens, dim), float16 or int8.
        scales: (tokens,) float32; None for float16.
    """

    values: NDArray[Any]
    scales: NDArray[np.float32] | None


class TokenBlock(NamedTuple):
    """The tokens of some items, one after the other.

    Attributes:
        values: as stored, in float32.
        scales: what each token is to be multiplied by; None: by 1.
        lengths: (items,) int64; number of tokens of each item, which may be 0.
    """

    values: Float[Tensor, "tokens dim"]
    scales: Float[Tensor, " tokens"] | None
    lengths: NDArray[np.int64]

    def tokens(self) -> Float[Tensor, "tokens dim"]:
        """Return the tokens themselves."""
        return self.values if self.scales is None else self.values * self.scales.unsqueeze(1)


def pack(tokens: NDArray[np.float32], dtype: TokenDtype) -> PackedTokens:
    """Bring tokens into the stored form.

    Args:
        tokens: (tokens, dim).
        dtype: int8 spends the whole range on each token: its largest value becomes 127.
    """
    if dtype == "float16":
        return PackedTokens(tokens.astype(np.float16), None)
    largest = np.abs(tokens).max(axis=1, initial=0)  # (tokens,)
    scales = np.where(largest > 0, largest / 127, 1).astype(np.float32)
    return PackedTokens(np.rint(tokens / scales[:, None]).astype(np.int8), scales)


class TokenStore:
    """Reads the tokens of items by their rows; safe to use from any number of threads."""

    def __init__(
        self, folder: Path, count: int, token_count: int, dim: int, dtype: TokenDtype
    ) -> None:
        """Map the files of one side.

        Args:
            folder: of the side.
            count: number of items.
            token_count: number of tokens of all items.
            dim: size of a token.
            dtype: as stored.

        Raises:
            IndexCorruptError: a file is not what these numbers say.
        """
        values = map_npy(folder / TOKENS, dtype, (token_count, dim), random=True)
        self._values = torch.from_numpy(values)
        self._scales: Tensor | None = None
        if dtype == "int8":
            scales = map_npy(folder / SCALES, np.float32, (token_count,), random=True)
            self._scales = torch.from_numpy(scales)
        self._offsets: NDArray[np.int64] = map_npy(folder / OFFSETS, np.int64, (count + 1,))
        if self._offsets[0] != 0 or self._offsets[-1] != token_count:
            ends = f"{self._offsets[0]} to {self._offsets[-1]}"
            raise IndexCorruptError(folder / OFFSETS, f"expected 0 to {token_count}, got {ends}")

    def lengths(self, rows: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return the number of tokens of some items."""
        return self._offsets[rows + 1] - self._offsets[rows]

    def read(self, rows: NDArray[np.int64]) -> TokenBlock:
        """Read the tokens of some items, in the order asked for."""
        starts, lengths = self._offsets[rows], self.lengths(rows)
        # Token by token: its place in the file is its item's start and its place in the item.
        ends = np.cumsum(lengths)
        total = int(ends[-1]) if len(ends) else 0
        places = torch.from_numpy(np.repeat(starts - (ends - lengths), lengths) + np.arange(total))
        values = self._values.index_select(0, places).float()
        scales = None if self._scales is None else self._scales.index_select(0, places)
        return TokenBlock(values, scales, lengths)
