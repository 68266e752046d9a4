"""Heads that start as the projections of two pretrained towers."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import nn

from aladin_network.config import (
    AlignmentHeadConfig,
    ImageEncoderConfig,
    MatchingHeadConfig,
    ModelConfig,
    TextEncoderConfig,
    TowerConfig,
)
from aladin_network.encoders.base import Projection
from aladin_network.errors import ConfigError
from aladin_network.heads.tower_start import TowerProjections, fit_to_towers, start_as

BARE = TowerConfig(trunk=None)
MATCHING = MatchingHeadConfig(layers=0, start="towers")


def projections(shared: int = 6) -> TowerProjections:
    generator = torch.Generator().manual_seed(0)
    weights = [torch.randn(shared, width, generator=generator) for width in (8, 5)]
    return TowerProjections(
        Projection(weights[0], None), Projection(weights[1], torch.ones(shared))
    )


def config(**changes: Any) -> ModelConfig:
    parts: dict[str, Any] = {
        "image_encoder": ImageEncoderConfig(),
        "text_encoder": TextEncoderConfig(),
        "image_tower": BARE,
        "text_tower": BARE,
        "matching": MATCHING,
    }
    return ModelConfig(**(parts | changes))


def head(dim: int) -> nn.ModuleDict:
    return nn.ModuleDict({"image": nn.Linear(8, dim), "text": nn.Linear(5, dim)})


def test_the_sizes_come_from_the_projections() -> None:
    own = projections()
    fitted, kept = fit_to_towers(config(), *own)
    assert kept == own
    assert fitted.matching.dim == 6
    assert fitted.alignment.dim == 128  # starts at random
    both = config(alignment=AlignmentHeadConfig(dim=None, start="towers"))
    assert fit_to_towers(both, *own)[0].alignment.dim == 6
    random = config(matching=MatchingHeadConfig())
    assert fit_to_towers(random, None, None) == (random, None)


def test_a_head_of_the_full_size_is_the_projections() -> None:
    own, maps = projections(), head(6)
    start_as(maps, own)
    assert torch.equal(maps["image"].weight, own.image.weight)
    assert torch.equal(maps["text"].weight, own.text.weight)
    assert maps["image"].bias.tolist() == [0.0] * 6  # the tower adds nothing
    assert maps["text"].bias.tolist() == [1.0] * 6


def test_a_narrower_head_keeps_cosines_about_as_they_were() -> None:
    torch.manual_seed(0)
    own, maps = projections(shared=400), head(128)
    start_as(maps, own)
    images, texts = torch.randn(20, 8), torch.randn(20, 5)
    whole = torch.cosine_similarity(
        (images @ own.image.weight.T).unsqueeze(1),
        (texts @ own.text.weight.T + 1).unsqueeze(0),
        dim=2,
    )
    with torch.no_grad():
        narrow = torch.cosine_similarity(
            maps["image"](images).unsqueeze(1), maps["text"](texts).unsqueeze(0), dim=2
        )
    assert float((whole - narrow).abs().mean()) < 1 / 128**0.5
    assert float((whole - narrow).abs().max()) < 4 / 128**0.5


OWN, NARROW = projections(), projections(shared=4)
MEAN = MatchingHeadConfig(layers=0, pooling=("mean",), start="towers")


@pytest.mark.parametrize(
    ("changes", "image", "text", "reason"),
    [
        ({"image_tower": TowerConfig()}, OWN.image, OWN.text, 'trunk = "null"'),
        (
            {"text_tower": TowerConfig(trunk=None, aggregate="mean")},
            OWN.image,
            OWN.text,
            'aggregate = "encoder"',
        ),
        ({"matching": MatchingHeadConfig(start="towers")}, OWN.image, OWN.text, "layers = 0"),
        ({"matching": MEAN}, OWN.image, OWN.text, r'pooling = \["first"\]'),
        ({"matching": replace(MATCHING, dim=5)}, OWN.image, OWN.text, "dim is 5, not 6"),
        (
            {"alignment": AlignmentHeadConfig(dim=7, start="towers")},
            OWN.image,
            OWN.text,
            "dim is 7, over 6",
        ),
        ({}, OWN.image, NARROW.text, "end in 6 and 4 numbers"),
        ({}, OWN.image, None, "needs pretrained dual encoders"),
    ],
)
def test_heads_that_cannot_start_as_the_towers_are_refused(
    changes: dict[str, Any], image: Projection, text: Projection | None, reason: str
) -> None:
    with pytest.raises(ConfigError, match=reason):
        fit_to_towers(config(**changes), image, text)
