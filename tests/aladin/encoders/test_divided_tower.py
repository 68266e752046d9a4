"""A divided encoder goes on from its states as if it had read the photos."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from aladin_network.encoders.base import LayerStates
from aladin_network.encoders.hf_image import HFImageEncoder
from aladin_network.errors import ConfigError
from tests.aladin.encoders.conftest import PATCHES, RESNET, image_encoder

_TRANSFORMER = PATCHES | {"num_hidden_layers": 3}
# Architecture, chosen layers, number of the last layers.
FAMILIES: dict[str, tuple[dict[str, Any], tuple[int, ...], int]] = {
    "mobilenet_v2": ({"depth_multiplier": 0.2, "min_depth": 4}, (11, 15), 4),
    "resnet": (RESNET, (), 1),
    "vit": (_TRANSFORMER, (), 1),
    "dinov2": (_TRANSFORMER, (), 2),
    "clip_vision_model": (_TRANSFORMER, (), 2),
    "siglip_vision_model": (_TRANSFORMER, (), 1),
}


def encoder_of(family: str, layers: tuple[int, ...] = (), px: int = 32) -> HFImageEncoder:
    plain = image_encoder(family, px, **FAMILIES[family][0])
    for module in plain.modules():
        if isinstance(module, nn.Conv2d):  # random weights of the library's own let maps vanish
            nn.init.normal_(module.weight, std=2 / module.weight[0].numel() ** 0.5)
    config = dataclasses.replace(plain.config, layers=layers)
    return HFImageEncoder(config, model=plain.model).eval()


def photos(count: int) -> Tensor:
    return torch.rand(count, 3, 32, 32, generator=torch.Generator().manual_seed(1))


@pytest.mark.parametrize("family", FAMILIES)
def test_states_lead_to_the_output_of_the_photos(family: str) -> None:
    _, layers, last = FAMILIES[family]
    encoder = encoder_of(family, layers)
    names = list(encoder.state_dict())
    batch = photos(20)  # more than are computed at a time
    with torch.no_grad():
        expected = encoder(batch)
        encoder.divide(last)
        states = encoder.layer_states(batch)
        found = encoder(states)
        torch.testing.assert_close(found.states, expected.states, atol=1e-4, rtol=1e-4)
        assert torch.equal(found.content, expected.content)
        torch.testing.assert_close(encoder(batch).states, expected.states)  # photos go on to work
        # States of other photos give other outputs.
        assert (found.states[0] - found.states[1]).abs().max() > 1e-3
    assert list(encoder.state_dict()) == names
    assert encoder.last_layers == last


def test_the_weights_are_shared_and_only_the_last_ones_get_gradients() -> None:
    _, layers, last = FAMILIES["mobilenet_v2"]
    encoder = encoder_of("mobilenet_v2", layers)
    encoder.divide(last)
    states, digest = encoder.layer_states(photos(2)), encoder.states_digest()
    encoder(states).states.square().sum().backward()
    learning = {name for name, value in encoder.named_parameters() if value.grad is not None}
    in_layers = {int(name.split(".")[2]) for name in learning if ".layer." in name}
    assert in_layers == {12, 13, 14, 15}
    assert not any("conv_stem" in name for name in learning)
    assert any("conv_1x1" in name for name in learning)
    before = encoder(states).states
    with torch.no_grad():
        encoder.model.get_parameter("layer.15.reduce_1x1.convolution.weight").mul_(2)
    assert encoder.states_digest() == digest
    assert (encoder(states).states - before).abs().max() > 1e-3
    with torch.no_grad():
        encoder.model.get_parameter("layer.11.reduce_1x1.convolution.weight").mul_(2)
    assert encoder.states_digest() != digest


def test_the_digest_of_states_changes_with_sizes_and_division() -> None:
    def digest(px: int, layers: tuple[int, ...], last: int) -> str:
        other = encoder_of("mobilenet_v2", layers, px)
        other.divide(last)
        return other.states_digest()

    assert digest(32, (15,), 4) == digest(32, (11, 15), 4)  # what follows does not matter
    assert len({digest(32, (15,), 4), digest(32, (15,), 3), digest(64, (15,), 4)}) == 3


@pytest.mark.parametrize(
    ("family", "layers", "last", "message"),
    [
        ("mobilenet_v2", (), 16, "more than 16 layers.*16 layers"),
        ("mobilenet_v2", (), 0, "more than 0 layers"),
        ("mobilenet_v2", (10,), 4, "needs more than the states"),
        ("vit", (1,), 1, "needs more than the states|cannot begin"),
    ],
)
def test_a_division_that_loses_something_is_refused(
    family: str, layers: tuple[int, ...], last: int, message: str
) -> None:
    encoder = encoder_of(family, layers)
    with pytest.raises(ConfigError, match=message):
        encoder.divide(last)
    assert encoder.last_layers is None
    with pytest.raises(ConfigError, match="not divided"):
        encoder.layer_states(photos(1))


def test_a_division_ends() -> None:
    encoder = encoder_of("resnet")
    encoder.divide(1)
    states = encoder.layer_states(photos(1))
    encoder.divide(None)
    with pytest.raises(ConfigError, match="not divided"):
        encoder(LayerStates(states.values))
