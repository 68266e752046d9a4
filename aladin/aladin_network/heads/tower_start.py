"""Heads that start as the projections of pretrained dual encoders.

A matching head that starts so reproduces the dual encoder's similarity without training. The
projections are read by `aladin_network.encoders.pretrained`.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
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

    Returns:
        The configuration with the heads' sizes, and the projections; None where no head starts
        from them.

    Raises:
        ConfigError: If a head is to start from towers that do not allow it or do not belong
            together.
    """
    matching, alignment = config.matching, config.alignment
    starts = {"matching": matching.start, "alignment": alignment.start}
    heads = [name for name, start in starts.items() if start == "towers"]
    if not heads:
        return config, None
    where = f'{" and ".join(heads)}: start = "towers"'
    if image is None or text is None:
        raise ConfigError(f"{where} needs pretrained dual encoders as sources, with pooled = true")
    dim, other = image.weight.shape[0], text.weight.shape[0]
    for holds, fault in (
        (
            other == dim,
            f": the towers' projections end in {dim} and {other} numbers, not in one space",
        ),
        (
            _bare(config.image_tower) and _bare(config.text_tower),
            ' needs towers with trunk = "null" and aggregate = "encoder"',
        ),
        *_faults_of_heads(config, dim),
    ):
        if not holds:
            raise ConfigError(f"{where}{fault}")
    if "matching" in heads:
        matching = dataclasses.replace(matching, dim=dim)
    if "alignment" in heads:
        alignment = dataclasses.replace(alignment, dim=alignment.dim or dim)
    fitted = dataclasses.replace(config, matching=matching, alignment=alignment)
    return fitted, TowerProjections(image, text)


def _faults_of_heads(config: ModelConfig, dim: int) -> Iterator[tuple[bool, str]]:
    """Yield what must hold for heads that start as projections to `dim` numbers, and the fault."""
    matching, alignment = config.matching, config.alignment
    if matching.start == "towers":
        pools_first = not matching.layers and matching.pooling == ("first",)
        yield pools_first, ': give the matching head layers = 0 and pooling = ["first"]'
        yield matching.dim in (None, dim), f": matching.dim is {matching.dim}, not {dim}"
    if alignment.start == "towers":
        yield (alignment.dim or 0) <= dim, f": alignment.dim is {alignment.dim}, over {dim}"


@torch.no_grad()
def start_as(head: nn.ModuleDict, projections: TowerProjections) -> None:
    """Set a head's linear maps, "image" and "text", to the towers' projections.

    Where they are narrower, a random orthonormal map that both share follows: it keeps cosines
    about as they were (Johnson and Lindenstrauss), at an error of one over the root of its size.
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
