"""The matching head: one embedding per item (ALADIN, training/PAPERS.md)."""

from __future__ import annotations

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.nn import functional as F

from aladin_network.config import MatchingHeadConfig
from aladin_network.encoders.base import Features
from aladin_network.errors import ConfigError
from aladin_network.heads.layers import TransformerStack
from aladin_network.scoring.masking import masked_max, masked_mean
from aladin_network.types import Modality


class MatchingHead(nn.Module):
    """Transformer layers shared by both modalities, pooled to one L2-normalised vector."""

    def __init__(self, config: MatchingHeadConfig, image_width: int, text_width: int) -> None:
        """Build the head.

        Raises:
            ConfigError: If the towers differ in width, so that the layers cannot be shared, or
                there are several poolings without a `dim`.
        """
        super().__init__()
        if image_width != text_width and (config.layers or config.dim is None):
            raise ConfigError(
                f"matching: the towers' widths differ ({image_width} and {text_width}); "
                "give them trunks of one width, or use layers = 0 with a dim"
            )
        self.config = config
        self.stack = TransformerStack(
            image_width,
            config.layers,
            config.heads,
            config.feedforward or image_width,
            config.dropout,
        )
        poolings = len(config.pooling)
        if poolings != 1 and config.dim is None:
            raise ConfigError(f"matching: {poolings} poolings need a dim, one does not")
        self.projections = nn.ModuleDict()
        if config.dim is not None:
            for modality, width in (("image", image_width), ("text", text_width)):
                self.projections[modality] = nn.Linear(poolings * width, config.dim)
        self.dim = config.dim if config.dim is not None else image_width

    def forward(self, features: Features, modality: Modality) -> Float[Tensor, "batch dim"]:
        """Return the embeddings of a batch."""
        states = self.stack(features.states, features.mask)
        parts: list[Tensor] = []
        for how in self.config.pooling:
            if how == "first":
                parts.append(states[:, 0])
            else:
                pool = masked_mean if how == "mean" else masked_max
                parts.append(pool(states, features.content))
        pooled = torch.cat(parts, 1)
        if modality in self.projections:
            pooled = self.projections[modality](pooled)
        return F.normalize(pooled.float(), dim=-1)
