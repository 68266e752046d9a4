"""Transformer layers as every part of the network uses them."""

from __future__ import annotations

from torch import Tensor, nn

from aladin.errors import ConfigError


class TransformerStack(nn.Module):
    """Post-norm transformer encoder layers with ReLU (torch defaults), no final norm."""

    def __init__(
        self, width: int, layers: int, heads: int, feedforward: int, dropout: float
    ) -> None:
        """Build `layers` layers.

        Raises:
            ConfigError: `width` is no multiple of `heads`.
        """
        super().__init__()
        if width % heads:
            raise ConfigError(f"width {width} is not a multiple of {heads} attention heads")
        self.layers = nn.ModuleList(
            nn.TransformerEncoderLayer(width, heads, feedforward, dropout, batch_first=True)
            for _ in range(layers)
        )

    def forward(self, states: Tensor, mask: Tensor) -> Tensor:
        """Attend within each sequence.

        Args:
            states: (batch, tokens, width) float.
            mask: (batch, tokens) bool, True at real tokens; padding is never attended to.

        Returns:
            (batch, tokens, width) float; what stands at padding means nothing.
        """
        for layer in self.layers:
            states = layer(states, src_key_padding_mask=~mask)
        return states
