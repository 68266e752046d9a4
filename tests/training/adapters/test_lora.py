"""Adapters: merged they are what they were unmerged, and nothing else of the encoder changes."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from aladin_network import errors
from aladin_network.errors import ConfigError
from aladin_training.adapters.layers import fine_tuned_names
from aladin_training.adapters.lora import add_adapters, check_targets, merge_adapters, target_names
from aladin_training.config.tune import TuneConfig


class Block(nn.Module):
    """A layer of a network that is half transformer, half convolutional."""

    def __init__(self) -> None:
        super().__init__()
        self.query = nn.Linear(6, 6)
        self.value = nn.Linear(6, 6)
        self.depthwise = nn.Conv2d(6, 6, 3, padding=1, groups=6)
        self.pointwise = nn.Conv2d(6, 6, 1)

    def forward(self, states: torch.Tensor) -> torch.Tensor:
        states = states + self.value(torch.tanh(self.query(states)))
        cells = self.pointwise(self.depthwise(states.transpose(1, 2).unflatten(2, (2, 2))))
        return states + cells.flatten(2).transpose(1, 2)


class Encoder(nn.Module):
    """Embeddings, two layers, a projection."""

    def __init__(self) -> None:
        super().__init__()
        self.embedding = nn.Linear(3, 6)
        self.layers = nn.ModuleList([Block(), Block()])
        self.projection = nn.Linear(6, 2)

    def forward(self, values: torch.Tensor) -> torch.Tensor:
        states = self.embedding(values)
        for layer in self.layers:
            states = layer(states)
        return self.projection(states)


@pytest.fixture
def encoder() -> Encoder:
    torch.manual_seed(0)
    return Encoder()


def train_a_little(encoder: nn.Module, values: torch.Tensor) -> None:
    for _ in range(3):
        encoder(values).square().sum().backward()
        for parameter in encoder.parameters():
            if parameter.grad is not None:
                parameter.data -= 0.05 * parameter.grad
                parameter.grad = None


def test_merged_equals_unmerged_and_the_encoder_is_plain_again(encoder: Encoder) -> None:
    values = torch.randn(2, 4, 3)
    before = {name: value.clone() for name, value in encoder.state_dict().items()}
    start = encoder(values)
    add_adapters(encoder, TuneConfig(mode="lora", rank=2, alpha=8))
    torch.testing.assert_close(encoder(values), start, atol=0, rtol=0)
    train_a_little(encoder, values)
    unmerged = encoder(values)
    assert (unmerged - start).abs().max() > 1e-2
    merge_adapters(encoder)
    torch.testing.assert_close(encoder(values), unmerged, atol=1e-5, rtol=0)
    after = encoder.state_dict()
    assert after.keys() == before.keys()
    changed = {name for name in after if not torch.equal(after[name], before[name])}
    assert changed == {
        f"layers.{layer}.{name}.weight"
        for layer in (0, 1)
        for name in ("query", "value", "pointwise")
    }


def test_the_change_of_a_matrix_is_alpha_over_rank_times_the_product(encoder: Encoder) -> None:
    before = encoder.layers[1].get_parameter("query.weight").clone()
    add_adapters(encoder, TuneConfig(mode="lora", rank=2, alpha=8, targets=("layers.1.query",)))
    adapters = {name: value for name, value in encoder.named_parameters() if value.requires_grad}
    assert [tuple(value.shape) for value in adapters.values()] == [(2, 6), (6, 2)]
    assert adapters.keys() == fine_tuned_names(encoder, TuneConfig(mode="lora", rank=2))
    a, b = adapters.values()
    b.data.normal_()
    expected = before + 8 / 2 * b @ a
    merge_adapters(encoder)
    found = encoder.layers[1].get_parameter("query.weight")
    torch.testing.assert_close(found, expected, atol=1e-6, rtol=0)


def test_targets_are_the_ends_of_names(encoder: Encoder) -> None:
    assert target_names(encoder, ("query", "0.value")) == [
        "layers.0.query",
        "layers.1.query",
        "layers.0.value",
    ]
    # Not `0.value`'s end of a longer word.
    with pytest.raises(ConfigError, match="no matrix is named 'alue', known are"):
        target_names(encoder, ("alue",))


def test_a_missing_peft_is_named(encoder: Encoder, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(errors, "find_spec", lambda _: None)
    with pytest.raises(ConfigError, match=r"aladin-search\[train\]"):
        check_targets(encoder, None)
