"""The trainable layers between an encoder and the heads."""

from __future__ import annotations

from torch import Tensor, nn
from torch.nn import functional as F

from aladin_network.config import TrunkConfig
from aladin_network.encoders.base import Features
from aladin_network.heads.layers import ChannelDropout, TokenDropout, TransformerStack, layout_of


class UnitLength(nn.Module):
    """Divides each token by its Euclidean norm."""

    def forward(self, states: Tensor) -> Tensor:
        """Normalise the last axis."""
        return F.normalize(states, dim=-1)


class Trunk(nn.Module):
    """Normalisation, dropout, projection and transformer layers after an encoder."""

    def __init__(self, config: TrunkConfig, in_dim: int) -> None:
        super().__init__()
        self.token_dropout = TokenDropout(config.token_dropout)
        self.input_dropout = ChannelDropout(config.input_dropout)
        self.dropout = ChannelDropout(config.dropout)
        norms = {"layer": lambda: nn.LayerNorm(in_dim), "l2": UnitLength, "none": nn.Identity}
        self.norm: nn.Module = norms[config.input_norm]()
        self.projection = nn.Linear(in_dim, config.width)
        self.stack = TransformerStack(
            config.width,
            config.layers,
            config.heads,
            config.feedforward,
            config.dropout,
            config.norm,
        )

    def projected(self, features: Features, cached: bool) -> Tensor:
        """Normalise and project an encoder's states to (batch, tokens, width).

        With dropout in training. No gradient passes through `cached` features. What stands at
        padding means nothing.
        """
        norm = self.norm
        if self.training and cached and isinstance(norm, nn.LayerNorm):
            return self._projected_in_one(norm, features)
        states = self.token_dropout(norm(features.states))
        return self.projection(self.input_dropout(states))

    def _projected_in_one(self, norm: nn.LayerNorm, features: Features) -> Tensor:
        """Project with the norm's weight and bias folded into the projection's.

        Cached features need no gradient, which is a third of the projection's work. The outputs
        of a norm with weights do, so the weights are moved behind it. Dropout of channels is the
        same for all tokens of an item, so that the bias is projected once an item.
        """
        states = F.layer_norm(features.states, norm.normalized_shape, None, None, norm.eps)
        batch, tokens, dim = states.shape
        kept = self.token_dropout(states.new_ones(batch, tokens, 1))
        factors = self.input_dropout(states.new_ones(batch, 1, dim))
        weight = self.projection.weight
        layout = layout_of(features.mask)
        rows = layout.rows(states * (kept * factors))
        scaled = layout.sequences(F.linear(rows, weight * norm.weight))
        shifted = F.linear(factors, weight * norm.bias)
        return scaled + kept * shifted + self.projection.bias
