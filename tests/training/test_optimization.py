"""Learning rates worked by hand, and the moving average against its definition as a loop."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from aladin_training.config.stage import ScheduleConfig, StageConfig, TaskConfig
from aladin_training.optimization import WeightAverage, build_optimizer, lr_factor, set_lr


class Network(nn.Module):
    """Parameters named as the parts of a task's network are."""

    def __init__(self) -> None:
        super().__init__()
        self.model = nn.ModuleDict(
            {"text": nn.ModuleDict({"encoder": nn.Linear(2, 2)}), "matching": nn.Linear(2, 2)}
        )
        self.temperature = nn.Parameter(torch.zeros(()))


def stage(**changes: object) -> StageConfig:
    tasks = {"matching": TaskConfig(loss="triplet")}
    return StageConfig(name="s", tasks=tasks, lr=0.1, **changes)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("schedule", "step", "expected"),
    [
        (ScheduleConfig(shape="cosine"), 0, 1.0),
        (ScheduleConfig(shape="cosine"), 50, 0.5),
        (ScheduleConfig(shape="cosine", warmup_steps=4), 0, 0.2),
        (ScheduleConfig(shape="cosine", warmup_steps=4), 3, 0.8),
        (ScheduleConfig(shape="cosine", warmup_steps=4), 4, 1.0),
        (ScheduleConfig(shape="cosine", warmup_steps=4), 52, 0.5),
        (ScheduleConfig(shape="step", step_epochs=3), 29, 1.0),
        (ScheduleConfig(shape="step", step_epochs=3), 30, 0.1),
        (ScheduleConfig(shape="step", step_epochs=3), 60, 0.01),
        (ScheduleConfig(shape="constant"), 99, 1.0),
    ],
)
def test_learning_rate_factor(schedule: ScheduleConfig, step: int, expected: float) -> None:
    assert lr_factor(step, 100, 10, schedule) == pytest.approx(expected)


def test_parts_learn_at_their_own_rate_and_vectors_do_not_decay() -> None:
    network = Network()
    optimizer = build_optimizer(network, stage(lr_scale={"text_encoder": 0.01}, weight_decay=0.5))
    set_lr(optimizer, 0.2)
    found = {
        name: (group["lr"], group["weight_decay"])
        for group in optimizer.param_groups
        for name, parameter in network.named_parameters()
        if any(parameter is each for each in group["params"])
    }
    assert found == {
        "model.text.encoder.weight": (pytest.approx(0.002), 0.5),
        "model.text.encoder.bias": (pytest.approx(0.002), 0.0),
        "model.matching.weight": (pytest.approx(0.2), 0.5),
        "model.matching.bias": (pytest.approx(0.2), 0.0),
        "temperature": (pytest.approx(0.2), 0.0),
    }


def test_frozen_parameters_are_neither_trained_nor_followed() -> None:
    network = Network()
    network.model["matching"].requires_grad_(False)
    groups = build_optimizer(network, stage()).param_groups
    assert sum(len(group["params"]) for group in groups) == 3
    names = ["temperature", "model.text.encoder.weight", "model.text.encoder.bias"]
    assert list(WeightAverage(network, 0.9).values) == names


@pytest.mark.parametrize("most", [0.9, 0.0])
def test_an_average_follows_its_definition(most: float) -> None:
    module = nn.Linear(1, 1, bias=False)
    module.weight.data.fill_(0.0)
    average = WeightAverage(module, decay=most)
    expected = 0.0
    for step in range(1, 200):
        module.weight.data.fill_(float(step))
        average.update()
        decay = min(most, step / (step + 10))
        expected = decay * expected + (1 - decay) * step
    assert average.values["weight"].item() == pytest.approx(expected, rel=1e-5)


def test_an_applied_average_is_taken_back_even_after_an_error() -> None:
    module = nn.Linear(1, 1, bias=False)
    module.weight.data.fill_(4.0)
    average = WeightAverage(module, decay=0.5)
    module.weight.data.fill_(8.0)
    with pytest.raises(RuntimeError), average.applied():
        assert module.weight.item() == 4.0
        raise RuntimeError
    assert module.weight.item() == 8.0
