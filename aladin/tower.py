"""An encoder, the trainable layers after it, and the aggregate token in front."""

from __future__ import annotations

from typing import Generic, Literal, TypeVar, assert_never, cast

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from aladin.config import TowerConfig, TrunkConfig
from aladin.encoders.base import Features, ImageEncoder, TextEncoder, with_front
from aladin.errors import ConfigError
from aladin.layers import ChannelDropout, TokenDropout, TransformerStack
from aladin.masking import masked_mean

E = TypeVar("E", bound=ImageEncoder | TextEncoder)


class UnitLength(nn.Module):
    """Divides each token by its Euclidean length."""

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
        self.norm = _input_norm(config.input_norm, in_dim)
        self.projection = nn.Linear(in_dim, config.width)
        self.stack = TransformerStack(
            config.width,
            config.layers,
            config.heads,
            config.feedforward,
            config.dropout,
            config.norm,
        )

    def project(self, states: Tensor) -> Tensor:
        """Bring the encoder's states to the trunk's width."""
        states = self.input_dropout(self.token_dropout(self.norm(states)))
        return self.projection(states)

    def attend(self, states: Tensor, mask: Tensor) -> Tensor:
        """Run the transformer layers."""
        return self.stack(self.dropout(states), mask)


def _input_norm(name: Literal["layer", "l2", "none"], dim: int) -> nn.Module:
    match name:
        case "layer":
            return nn.LayerNorm(dim)
        case "l2":
            return UnitLength()
        case "none":
            return nn.Identity()
        case _:
            assert_never(name)


class Tower(nn.Module, Generic[E]):
    """One modality up to the sequence that both heads read; element 0 is the aggregate."""

    def __init__(self, encoder: E, config: TowerConfig, positions: int | None = None) -> None:
        """Build the layers after `encoder`.

        Args:
            encoder: owned by this tower from now on.
            config: the layers.
            positions: number of learned positions, where `config` asks for them.

        Raises:
            ConfigError: positions are asked for where tokens have no fixed places.
        """
        super().__init__()
        self.encoder = encoder
        self.config = config
        self.trunk = Trunk(config.trunk, encoder.dim) if config.trunk else None
        self.width = config.trunk.width if config.trunk else encoder.dim
        if config.positions and positions is None:
            raise ConfigError(
                "tower: positions are for image grids only, whose cells have fixed places"
            )
        self.positions = (
            nn.Parameter(torch.empty(positions or 0, self.width)) if config.positions else None
        )
        self.aggregate = (
            nn.Parameter(torch.empty(self.width)) if config.aggregate == "learned" else None
        )
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Start this tower's own vectors at random; its layers start themselves."""
        for vectors in (self.positions, self.aggregate):
            if vectors is not None:
                nn.init.normal_(vectors, std=0.02)

    def forward(self, batch: object) -> Features:
        """Run the tower.

        Args:
            batch: the encoder's input, or its cached output (`Features`).

        Returns:
            Features of the tower's width, the aggregate in front.
        """
        features = batch if isinstance(batch, Features) else self._encode(batch)
        if self.trunk is not None:
            features = features._replace(states=self.trunk.project(features.states))
        if self.positions is not None:
            features = features._replace(states=features.states + self.positions)
        features = self._with_aggregate(features)
        if self.trunk is not None:
            states = self.trunk.attend(features.states, features.mask)
            features = features._replace(states=states)
        return features

    def _encode(self, batch: object) -> Features:
        return cast(nn.Module, self.encoder)(batch)

    def _with_aggregate(self, features: Features) -> Features:
        states, mask, content = features
        if self.config.aggregate == "encoder":
            if bool(content[:, 0].any()):
                raise ConfigError(
                    "tower: this encoder has no CLS of its own; set aggregate to mean or learned"
                )
            return features
        if self.config.aggregate == "first_region":
            if not bool(content[:, 0].any()):  # the encoder's own CLS, which nothing reads then
                states, mask, content = states[:, 1:], mask[:, 1:], content[:, 1:]
            content = content.clone()
            content[:, 0] = False
            return Features(states, mask, content)
        if self.aggregate is not None:
            front = self.aggregate.expand(states.shape[0], -1)
        else:
            front = masked_mean(states, content)
        return with_front(features, front)
