"""Heads that start as the projections of two pretrained towers, so that nothing of them is lost.

The matching head then gives the dual encoder's own similarity before it has seen a pair: its
linear maps are the towers' projections, and what it pools is the vector that these read.
"""

from __future__ import annotations

import dataclasses
from typing import NamedTuple

import torch
from torch import nn

from aladin.config import ModelConfig, TowerConfig
from aladin.encoders.base import Projection
from aladin.errors import ConfigError


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
    """Complete the heads that start as the towers' projections.

    Args:
        config: of a recipe.
        image: of the image encoder's source; None: it has none.
        text: of the text encoder's source.

    Returns:
        The configuration with the heads' sizes, and the projections; None where no head starts
        from them.

    Raises:
        ConfigError: a head is to start so that cannot, or of towers that do not belong together.
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
    """Give a head's linear maps the values of the towers' projections.

    Args:
        head: "image" and "text", each `torch.nn.Linear`. Where they are narrower than the
            projections, a random orthonormal map that both share follows: it keeps cosines about
            as they were (Johnson and Lindenstrauss), at an error of one over the root of its size.
        projections: of the towers.
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
    """Tell whether a tower hands the encoder's pooled vector to the heads as it is."""
    return tower.trunk is None and tower.aggregate == "encoder" and not tower.positions
