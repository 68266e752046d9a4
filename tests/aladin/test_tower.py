"""The layers after an encoder, and where the aggregate of element 0 comes from."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn

from aladin_network.config import (
    AlignmentHeadConfig,
    ImageEncoderConfig,
    MatchingHeadConfig,
    TowerConfig,
    TrunkConfig,
)
from aladin_network.encoders.base import Features
from aladin_network.errors import ConfigError
from aladin_network.heads.trunk import Trunk
from aladin_network.model import AladinModel

Build = Callable[..., AladinModel]
TRUNK = TrunkConfig(width=16, layers=0, heads=2)
CONVOLUTIONAL = ImageEncoderConfig(
    architecture={
        "model_type": "resnet",
        "embedding_size": 8,
        "hidden_sizes": [8, 12],
        "depths": [1, 1],
        "layer_type": "basic",
        "downsample_in_first_stage": True,
    },
)


@pytest.fixture
def features() -> Features:
    """Encoder output of two photos: CLS and 16 regions of width 24."""
    generator = torch.Generator().manual_seed(0)
    mask = torch.ones(2, 17, dtype=torch.bool)
    content = mask.clone()
    content[:, 0] = False
    return Features(torch.randn(2, 17, 24, generator=generator), mask, content)


def project(trunk: Trunk, states: torch.Tensor) -> torch.Tensor:
    """Bring an encoder's states to the trunk's width, as a tower does."""
    states = trunk.input_dropout(trunk.token_dropout(trunk.norm(states)))
    return trunk.projection(states)


def test_cached_features_are_projected_as_those_that_need_a_gradient(features: Features) -> None:
    """The norm's weights, folded into the projection, have the same dropout and gradients."""
    torch.manual_seed(0)
    config = TrunkConfig(width=16, layers=0, heads=2, input_dropout=0.3, token_dropout=0.3)
    trunk = Trunk(config, 24).double().train()
    assert isinstance(trunk.norm, nn.LayerNorm)
    with torch.no_grad():
        trunk.norm.weight.uniform_(0.5, 1.5)
        trunk.norm.bias.uniform_(-0.5, 0.5)
    mask = torch.ones(2, 17, dtype=torch.bool)
    mask[1, 9:] = False
    states = features.states.double()
    upstream = torch.randn(2, 17, 16, dtype=torch.float64) * mask.unsqueeze(-1)

    def projected(cached: bool) -> list[torch.Tensor]:
        torch.manual_seed(1)
        out = trunk.projected(Features(states, mask, mask), cached)
        wanted = [*trunk.norm.parameters(), *trunk.projection.parameters()]
        return [out[mask], *torch.autograd.grad((out * upstream).sum(), wanted)]

    for ours, expected in zip(projected(cached=True), projected(cached=False), strict=True):
        torch.testing.assert_close(ours, expected)


def test_no_trunk_hands_the_encoders_output_on(build_tiny: Build, features: Features) -> None:
    model = build_tiny(
        image_tower=TowerConfig(trunk=None),
        text_tower=TowerConfig(trunk=None),
        matching=MatchingHeadConfig(layers=0, dim=8),
    )
    assert model.image(features) == features
    assert (model.image.width, model.text.width) == (24, 20)


@pytest.mark.parametrize("aggregate", ["encoder", "mean", "learned"])
def test_the_aggregate_comes_in_front_of_the_projected_states(
    aggregate: Any, build_tiny: Build, features: Features
) -> None:
    tower = build_tiny(image_tower=TowerConfig(trunk=TRUNK, aggregate=aggregate)).image
    out = tower(features)
    assert tower.trunk is not None
    projected = project(tower.trunk, features.states)
    if aggregate == "encoder":  # the encoder's own CLS
        torch.testing.assert_close(out.states, projected)
        assert torch.equal(out.content, features.content)
        return
    if aggregate == "mean":
        expected = projected[:, 1:].mean(dim=1)
    else:
        assert tower.aggregate is not None
        assert tower.aggregate.requires_grad
        expected = tower.aggregate.expand(2, -1)
    torch.testing.assert_close(out.states[:, 0], expected)
    torch.testing.assert_close(out.states[:, 1:], projected)
    assert out.content.tolist() == [[False, False] + [True] * 16] * 2
    assert out.mask.all()


def test_the_first_region_in_the_official_code(build_tiny: Build) -> None:
    """It plays the CLS: it is pooled by matching, and leaves the alignment (A-1)."""
    model = build_tiny(
        image_encoder=CONVOLUTIONAL,
        image_tower=TowerConfig(trunk=TRUNK, aggregate="first_region"),
        matching=MatchingHeadConfig(layers=0),
    )
    cells = model.image.encoder.num_tokens
    mask = torch.ones(1, cells, dtype=torch.bool)
    features = Features(torch.randn(1, cells, 12), mask, mask)
    encoding = model.encode_images(features)
    assert model.image.trunk is not None
    projected = project(model.image.trunk, features.states)
    first = torch.nn.functional.normalize(projected[:, 0], dim=-1)
    torch.testing.assert_close(encoding.embedding, first)
    assert int(encoding.mask.sum()) == cells - 1
    assert features.content.all()  # the caller's own mask is left alone


def test_an_encoder_without_cls_needs_an_aggregate(build_tiny: Build) -> None:
    model = build_tiny(image_encoder=CONVOLUTIONAL, image_tower=TowerConfig(trunk=TRUNK))
    with pytest.raises(ConfigError, match="set aggregate to mean or learned"):
        model.encode_images(torch.randn(1, 3, 224, 224))


@pytest.mark.parametrize("name", ["l2", "none"])
def test_the_projection_reads_states_of_unit_length_or_as_they_are(
    build_tiny: Build, features: Features, name: str
) -> None:
    """Unit length for IMC, the states as they are for DBL; neither has weights."""
    plain = TrunkConfig(width=16, layers=0, heads=2, dropout=0.0, input_norm=name)  # type: ignore[arg-type]
    tower = build_tiny(image_tower=TowerConfig(trunk=plain)).image
    assert tower.trunk is not None
    assert not list(tower.trunk.norm.parameters())
    states = features.states
    if name == "l2":
        states = states / states.square().sum(dim=-1, keepdim=True).sqrt()
    layer = tower.trunk.projection
    torch.testing.assert_close(tower(features).states, states @ layer.weight.T + layer.bias)


def test_learned_positions_tell_equal_regions_apart(build_tiny: Build) -> None:
    mask = torch.ones(1, 17, dtype=torch.bool)
    content = mask.clone()
    content[:, 0] = False
    same = Features(torch.ones(1, 17, 24), mask, content)
    plain = build_tiny(image_tower=TowerConfig(trunk=TRUNK)).image(same).states
    placed = build_tiny(image_tower=TowerConfig(trunk=TRUNK, positions=True)).image(same).states
    assert torch.equal(plain[0, 1], plain[0, 2])
    assert not torch.allclose(placed[0, 1], placed[0, 2])


def test_towers_of_different_widths_need_projections(build_tiny: Build) -> None:
    wider = TowerConfig(trunk=TrunkConfig(width=32, layers=0, heads=2))
    with pytest.raises(ConfigError, match=r"alignment: .* differ \(32 and 16\)"):
        build_tiny(
            image_tower=wider,
            alignment=AlignmentHeadConfig(dim=None),
            matching=MatchingHeadConfig(layers=0, dim=4),
        )
    model = build_tiny(image_tower=wider, matching=MatchingHeadConfig(layers=0, dim=4))
    assert model.alignment.projections["image"].weight.shape == (8, 32)
    assert model.alignment.projections["text"].weight.shape == (8, 16)
