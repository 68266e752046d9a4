"""Dropout and transformer layers of the towers and the heads, and the layout of their batches.

Captions differ in length: of a batch padded to the longest, two tokens in five are padding, and
layers of single tokens are most of the work of a tower.
"""

from __future__ import annotations

import math
from typing import Literal

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from aladin_network.errors import ConfigError

Norm = Literal["post", "pre"]


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
    """
    if mask.is_cuda or torch.compiler.is_compiling() or bool(mask.all()):
        return Padded(mask)
    return Packed(mask)


class ChannelDropout(nn.Module):
    """Dropout that drops a channel for all tokens of an item at once.

    Drawing one number for each token and channel costs a quarter of a training step on CPUs;
    one for each item and channel costs nothing, and regularises as well.
    """

    def __init__(self, probability: float) -> None:
        super().__init__()
        self.probability = probability

    def forward(self, states: Tensor, layout: Padded | None = None) -> Tensor:
        """Drop channels of (batch, tokens, dim) states, or of the rows of `layout`, in training."""
        if not self.training or self.probability == 0:
            return states
        keep = 1 - self.probability
        items = states.shape[0] if layout is None else layout.mask.shape[0]
        shape = (items, 1, states.shape[-1])
        factors = torch.empty(shape, device=states.device).bernoulli_(keep) / keep
        factors = factors.to(states.dtype)
        return states * (factors if layout is None else layout.of_items(factors))


class TokenDropout(nn.Module):
    """Dropout of whole tokens, words or regions, without scaling the others."""

    def __init__(self, probability: float) -> None:
        super().__init__()
        self.probability = probability

    def forward(self, states: Tensor) -> Tensor:
        """Zero tokens of (batch, tokens, dim) states in training."""
        if not self.training or self.probability == 0:
            return states
        keep = torch.empty(*states.shape[:2], 1, device=states.device)
        return states * keep.bernoulli_(1 - self.probability).to(states.dtype)


class TransformerLayer(nn.Module):
    """Self-attention and feed-forward with ReLU; post-norm is torch's and the paper's default.

    Attention is written out: on CPUs the backward pass of torch's fused kernel takes five times
    as long as these two batched products at the lengths of captions and region grids.
    """

    def __init__(
        self, width: int, heads: int, feedforward: int, dropout: float, norm: Norm = "post"
    ) -> None:
        super().__init__()
        self.heads = heads
        self.norm: Norm = norm
        self.query_key_value = nn.Linear(width, 3 * width)
        self.output = nn.Linear(width, width)
        self.feedforward = nn.Sequential(
            nn.Linear(width, feedforward), nn.ReLU(), nn.Linear(feedforward, width)
        )
        self.attention_norm = nn.LayerNorm(width)
        self.feedforward_norm = nn.LayerNorm(width)
        self.dropout = ChannelDropout(dropout)
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Reset the attention as torch's own does; the other layers reset themselves."""
        nn.init.xavier_uniform_(self.query_key_value.weight)
        nn.init.zeros_(self.query_key_value.bias)
        nn.init.zeros_(self.output.bias)

    def forward(self, rows: Tensor, layout: Padded) -> Tensor:
        """Run the layer on states in the layout of the batch."""
        if self.norm == "pre":
            attended = self._attend(self.attention_norm(rows), layout)
            rows = rows + self.dropout(attended, layout)
            return rows + self.dropout(self.feedforward(self.feedforward_norm(rows)), layout)
        rows = self.attention_norm(rows + self.dropout(self._attend(rows, layout), layout))
        return self.feedforward_norm(rows + self.dropout(self.feedforward(rows), layout))

    def _attend(self, rows: Tensor, layout: Padded) -> Tensor:
        mask = layout.mask
        batch, tokens = mask.shape
        projected = layout.sequences(self.query_key_value(rows))
        projected = projected.view(batch, tokens, 3, self.heads, -1)
        query, key, value = projected.permute(2, 0, 3, 1, 4)  # each (batch, heads, tokens, d)
        scores = (query / math.sqrt(query.shape[-1])) @ key.transpose(-2, -1)
        weights = F.softmax(scores.masked_fill(~mask[:, None, None, :], float("-inf")), dim=-1)
        mixed = (weights.to(value.dtype) @ value).transpose(1, 2)  # (batch, tokens, heads, d)
        return self.output(layout.rows(mixed.flatten(2)))


class TransformerStack(nn.Module):
    """Consecutive transformer layers; pre-norm layers are followed by one more norm."""

    def __init__(
        self,
        width: int,
        layers: int,
        heads: int,
        feedforward: int,
        dropout: float,
        norm: Norm = "post",
    ) -> None:
        """Build `layers` layers."""
        super().__init__()
        if width % heads:
            raise ConfigError(f"width {width} is not a multiple of {heads} attention heads")
        self.layers = nn.ModuleList(
            TransformerLayer(width, heads, feedforward, dropout, norm) for _ in range(layers)
        )
        self.final_norm = nn.LayerNorm(width) if norm == "pre" else nn.Identity()

    def forward(self, states: Tensor, mask: Tensor) -> Tensor:
        """Attend within each sequence of (batch, tokens, width) states; padding means nothing."""
        if not self.layers:
            return self.final_norm(states)
        layout = layout_of(mask)
        rows = layout.rows(states)
        for layer in self.layers:
            rows = layer(rows, layout)
        return layout.sequences(self.final_norm(rows))
