"""Heads that start as the projections of pretrained dual encoders.

A matching head that starts so reproduces the dual encoder's similarity without training. The
projections are read by `aladin_network.encoders.dual_encoder`.
"""

from __future__ import annotations

import dataclasses
from typing import NamedTuple

import torch
from torch import nn

from aladin_network.config import ModelConfig, TowerConfig
from aladin_network.encoders.base import Projection
from aladin_network.errors import ConfigError


class TowerProjections(NamedTuple):
    """The projections of a pair of towers into one space."""

    image: Projection
    text: Projection

    @property
    def dim(self) -> int:
        """Size of the space."""
        return self.image.weight.shape[0]


def fit_to_towers(
    config: ModelConfig, image: Projection | None, text: Projection | None
) -> tuple[ModelConfig, TowerProjections | None]:
    """Complete the heads that start with the towers' projections.

    Args:
        config: Configuration of a recipe.
        image: Projection of the image encoder's source, or None if it has none.
        text: Projection of the text encoder's source, or None if it has none.

    Returns:
        The configuration with the heads' sizes, and the projections; None where no head starts
        from them.

    Raises:
        ConfigError: If a head is to be initialised from towers that do not allow it or do not
            belong together.
    """
    heads = [
        name
        for name, start in (
            ("matching", config.matching.start),
            ("alignment", config.alignment.start),
        )
        if start == "towers"
    ]
    if not heads:
        return config, None
    where = f'{" and ".join(heads)}: start = "towers"'
    if image is None or text is None:
        raise ConfigError(f"{where} needs pretrained dual encoders as sources, with pooled = true")
    projections = TowerProjections(image, text)
    if text.weight.shape[0] != projections.dim:
        sizes = f"{projections.dim} and {text.weight.shape[0]}"
        raise ConfigError(
            f"{where}: the towers' projections end in {sizes} numbers, not in one space"
        )
    if not (_bare(config.image_tower) and _bare(config.text_tower)):
        raise ConfigError(f'{where} needs towers with trunk = "null" and aggregate = "encoder"')
    matching, alignment = config.matching, config.alignment
    if matching.start == "towers":
        if matching.layers or matching.pooling != ("first",):
            raise ConfigError(f'{where}: give the matching head layers = 0 and pooling = ["first"]')
        if matching.dim not in (None, projections.dim):
            raise ConfigError(f"{where}: matching.dim is {matching.dim}, not {projections.dim}")
        matching = dataclasses.replace(matching, dim=projections.dim)
    if alignment.start == "towers":
        if alignment.dim is not None and alignment.dim > projections.dim:
            raise ConfigError(f"{where}: alignment.dim is {alignment.dim}, over {projections.dim}")
        alignment = dataclasses.replace(alignment, dim=alignment.dim or projections.dim)
    return dataclasses.replace(config, matching=matching, alignment=alignment), projections


@torch.no_grad()
def start_as(head: nn.ModuleDict, projections: TowerProjections) -> None:
    """Set a head's linear maps to the towers' projections.

    Args:
        head: "image" and "text", each `torch.nn.Linear`. Where they are narrower than the
            projections, a random orthonormal map that both share follows: it keeps cosines about
            as they were (Johnson and Lindenstrauss), at an error of one over the root of its size.
        projections: Projections of the towers.
    """
    narrow = torch.eye(projections.dim)
    layers = {name: layer for name, layer in head.items() if isinstance(layer, nn.Linear)}
    dim = layers["image"].out_features
    if dim < projections.dim:
        narrow = nn.init.orthogonal_(torch.empty(dim, projections.dim))
    for name, (weight, bias) in (("image", projections.image), ("text", projections.text)):
        layers[name].weight.copy_(narrow @ weight)
        layers[name].bias.copy_(narrow @ (torch.zeros(projections.dim) if bias is None else bias))


def _bare(tower: TowerConfig) -> bool:
    """Tell whether a tower passes the encoder's pooled vector to the heads unchanged."""
    return tower.trunk is None and tower.aggregate == "encoder" and not tower.positions
