"""Optimizer, learning-rate schedule and weight average of a stage."""

from __future__ import annotations

import math
from collections.abc import Generator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn
from torch.optim import AdamW
from torch.optim.swa_utils import get_ema_multi_avg_fn

from aladin_network.encoders.base import Freezable
from aladin_training.adapters.layers import lr_factors
from aladin_training.adapters.parts import part_of
from aladin_training.config.stage import ScheduleConfig, StageConfig


def build_optimizer(task: nn.Module, stage: StageConfig) -> AdamW:
    """Build AdamW over all trained parameters; without decay it is the papers' Adam."""
    groups: dict[tuple[float, float], list[nn.Parameter]] = {}
    factors = _layer_factors(task, stage)
    for name, parameter in task.named_parameters():
        if not parameter.requires_grad:
            continue
        part = part_of(name)
        scale = stage.lr_scale.get(part, 1.0) if part else 1.0
        scale *= factors.get(name, 1.0)
        decay = stage.weight_decay if parameter.ndim > 1 else 0.0
        groups.setdefault((scale, decay), []).append(parameter)
    return AdamW(
        [
            {"params": parameters, "lr": stage.lr * scale, "scale": scale, "weight_decay": decay}
            for (scale, decay), parameters in groups.items()
        ],
        # One kernel for all parameters: those of a small network are launched faster than computed.
        fused=True,
    )


def _layer_factors(task: nn.Module, stage: StageConfig) -> dict[str, float]:
    """Return the learning-rate factors of fine-tuned encoders, by parameter name in the task."""
    factors: dict[str, float] = {}
    for prefix, module in task.named_modules():
        part = part_of(f"{prefix}.")
        if isinstance(module, Freezable) and part in stage.tune:
            of_encoder = lr_factors(module, stage.tune[part])
            factors |= {f"{prefix}.{name}": factor for name, factor in of_encoder.items()}
    return factors


def lr_factor(step: int, steps: int, steps_per_epoch: int, schedule: ScheduleConfig) -> float:
    """Return the learning rate at a step relative to its peak."""
    if step < schedule.warmup_steps:
        return (step + 1) / (schedule.warmup_steps + 1)
    if schedule.shape == "cosine":
        done = (step - schedule.warmup_steps) / max(1, steps - schedule.warmup_steps)
        return 0.5 * (1 + math.cos(math.pi * done))
    if schedule.shape == "step":
        return schedule.gamma ** (step // steps_per_epoch // schedule.step_epochs)
    return 1.0


def set_lr(optimizer: AdamW, lr: float) -> None:
    """Set the learning rate, scaled for each group."""
    for group in optimizer.param_groups:
        group["lr"] = lr * group["scale"]


@torch.no_grad()
def follow(averages: list[Tensor], weights: list[Tensor], decay: float) -> None:
    """Move averages towards weights in place, in a few operations; `decay` is what is kept."""
    get_ema_multi_avg_fn(decay)(averages, weights, 0)


class WeightAverage:
    """Exponential moving average of the trained weights, which often generalises better."""

    def __init__(self, module: nn.Module, decay: float) -> None:
        """Start at the current weights."""
        self.decay = decay
        self.steps = 0
        self._followed = {
            name: parameter
            for name, parameter in module.named_parameters()
            if parameter.requires_grad
        }
        self.values: dict[str, Tensor] = {
            name: value.detach().clone() for name, value in self._followed.items()
        }

    @torch.no_grad()
    def update(self) -> None:
        """Update the average after an optimizer step."""
        self.steps += 1
        # A lower decay at first, so that the average forgets the random start.
        decay = min(self.decay, self.steps / (self.steps + 10))
        follow(list(self.values.values()), list(self._followed.values()), decay)

    @contextmanager
    def applied(self) -> Generator[None]:
        """Replace the module's weights by the averages for the duration of the block."""
        trained = {name: value.detach().clone() for name, value in self._followed.items()}
        self._copy(self.values)
        try:
            yield
        finally:
            self._copy(trained)

    def state_dict(self) -> dict[str, Any]:
        """Return the state for `load_state_dict`."""
        return {"steps": self.steps, "values": self.values}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Restore a saved state of the same module."""
        self.steps = state["steps"]
        self.values = state["values"]

    @torch.no_grad()
    def _copy(self, values: dict[str, Tensor]) -> None:
        for name, value in values.items():
            self._followed[name].copy_(value)
