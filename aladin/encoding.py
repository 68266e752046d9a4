"""What the network says of an item: one embedding, and tokens for late interaction."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from aladin.masking import lengthened


class Encoding(NamedTuple):
    """A batch of encoded images or texts.

    Attributes:
        embedding: L2-normalised; the vector of the first stage.
        tokens: L2-normalised; the regions or words of the second stage.
        mask: True at real tokens.
    """

    embedding: Float[Tensor, "batch d_match"]
    tokens: Float[Tensor, "batch tokens d_align"]
    mask: Bool[Tensor, "batch tokens"]

    @property
    def size(self) -> int:
        """Number of items."""
        return self.embedding.shape[0]

    def rows(self, rows: slice | Tensor) -> Encoding:
        """Take some items."""
        return Encoding(self.embedding[rows], self.tokens[rows], self.mask[rows])

    def to(self, device: torch.device | str) -> Encoding:
        """Move to a device."""
        return Encoding(*(part.to(device) for part in self))

    def item_tokens(self, row: int) -> Float[Tensor, "real d_align"]:
        """Return the real tokens of one item."""
        return self.tokens[row][self.mask[row]]


def concatenate(parts: Sequence[Encoding]) -> Encoding:
    """Join batches whose token axes differ in length; the shorter ones are padded.

    Args:
        parts: at least one batch.

    Returns:
        One batch of all items, in order.
    """
    longest = max(part.mask.shape[1] for part in parts)
    return Encoding(
        embedding=torch.cat([part.embedding for part in parts]),
        tokens=torch.cat([lengthened(part.tokens, longest) for part in parts]),
        mask=torch.cat([lengthened(part.mask, longest) for part in parts]),
    )
