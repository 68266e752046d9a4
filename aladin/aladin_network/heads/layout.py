"""How the tokens of a batch lie in memory while layers of single tokens compute on them.

Captions differ in length: of a batch padded to the longest, two tokens in five are padding, and
layers of single tokens are most of the work of a tower.
"""

from __future__ import annotations

import torch
from torch import Tensor


class Padded:
    """The layout of a batch whose sequences are padded to the longest."""

    def __init__(self, mask: Tensor) -> None:
        """Describe a batch by its mask, (batch, tokens) bool."""
        self.mask = mask

    def rows(self, states: Tensor) -> Tensor:
        """Return what layers of single tokens compute on: the (batch, tokens, dim) states."""
        return states

    def sequences(self, rows: Tensor) -> Tensor:
        """Return `rows` as (batch, tokens, dim), which attention needs."""
        return rows

    def of_items(self, values: Tensor) -> Tensor:
        """Return (batch, 1, dim) values so that they broadcast against `rows`."""
        return values


class Packed(Padded):
    """The layout of the real tokens alone, one after the other."""

    def __init__(self, mask: Tensor) -> None:
        """Describe a batch by its mask, (batch, tokens) bool."""
        super().__init__(mask)
        self._places = mask.flatten().nonzero().squeeze(1)  # (real tokens,)

    def rows(self, states: Tensor) -> Tensor:
        """Return the real tokens of (batch, tokens, dim) states, (real tokens, dim)."""
        return states.flatten(0, 1).index_select(0, self._places)

    def sequences(self, rows: Tensor) -> Tensor:
        """Return `rows` as (batch, tokens, dim), with zeros at padding."""
        flat = rows.new_zeros(self.mask.numel(), rows.shape[1])
        return flat.index_copy(0, self._places, rows).unflatten(0, self.mask.shape)

    def of_items(self, values: Tensor) -> Tensor:
        """Return the (batch, 1, dim) values of each real token's item, (real tokens, dim)."""
        return values.squeeze(1).index_select(0, self._places // self.mask.shape[1])


def layout_of(mask: Tensor) -> Padded:
    """Return the layout in which a batch takes the least time.

    On a GPU the processor would have to wait for the number of real tokens, and an exported graph
    has no number of its own for them.

    Args:
        mask: (batch, tokens) bool, True at real tokens.
    """
    if mask.is_cuda or torch.compiler.is_compiling() or bool(mask.all()):
        return Padded(mask)
    return Packed(mask)
