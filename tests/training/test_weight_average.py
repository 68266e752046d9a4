"""The moving average, against its definition written as a loop."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from aladin_training.optimization import WeightAverage


def test_average_follows_its_definition() -> None:
    module = nn.Linear(1, 1, bias=False)
    module.weight.data.fill_(0.0)
    average = WeightAverage(module, decay=0.9)
    expected = 0.0
    for step in range(1, 200):
        module.weight.data.fill_(float(step))
        average.update()
        decay = min(0.9, step / (step + 10))
        expected = decay * expected + (1 - decay) * step
    assert average.values["weight"].item() == pytest.approx(expected, rel=1e-5)


def test_applied_swaps_and_gives_back_even_after_an_error() -> None:
    module = nn.Linear(1, 1, bias=False)
    module.weight.data.fill_(4.0)
    average = WeightAverage(module, decay=0.5)
    module.weight.data.fill_(8.0)
    with pytest.raises(RuntimeError), average.applied():
        assert module.weight.item() == 4.0
        raise RuntimeError
    assert module.weight.item() == 8.0


def test_decay_zero_is_the_weights_themselves() -> None:
    module = nn.Linear(2, 2)
    average = WeightAverage(module, decay=0.0)
    module.weight.data.add_(1)
    average.update()
    assert torch.equal(average.values["weight"], module.weight)


def test_frozen_parameters_are_not_followed() -> None:
    module = nn.Linear(2, 2)
    module.bias.requires_grad_(False)
    assert WeightAverage(module, 0.9).values.keys() == {"weight"}
