"""Masked reductions and padding of batches of tokens.

Masks are bool with True for real tokens; padding never wins a maximum.
"""

from __future__ import annotations

import torch
from jaxtyping import Bool, Float
from torch import Tensor


def fill_padding(
    scores: Float[Tensor, "*batch tokens"],
    mask: Bool[Tensor, "*#batch tokens"],
    value: float = float("-inf"),
) -> Float[Tensor, "*batch tokens"]:
    """Overwrite the scores of padded tokens (last axis) with `value`: -inf before a max."""
    return scores.masked_fill(~mask, value)


def masked_mean(
    states: Float[Tensor, "batch tokens dim"], mask: Bool[Tensor, "batch tokens"]
) -> Float[Tensor, "batch dim"]:
    """Average the real tokens of each item; an item without any gives zeros."""
    weights = mask.to(states.dtype).unsqueeze(-1)  # (batch, tokens, 1)
    return (states * weights).sum(1) / weights.sum(1).clamp_min(1)


def masked_max(
    states: Float[Tensor, "batch tokens dim"], mask: Bool[Tensor, "batch tokens"]
) -> Float[Tensor, "batch dim"]:
    """Take each channel's maximum over the real tokens; an item without any gives zeros."""
    filled = states.masked_fill(~mask.unsqueeze(-1), float("-inf"))
    return filled.amax(dim=1).masked_fill(~mask.any(dim=1, keepdim=True), 0)


def lengthened(values: Tensor, length: int) -> Tensor:
    """Pad axis 1 to `length` with zeros (False for a mask)."""
    shape = (values.shape[0], length - values.shape[1], *values.shape[2:])
    return torch.cat([values, values.new_zeros(shape)], dim=1)
