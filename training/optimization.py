"""Optimizer and learning-rate schedule of a stage."""

from __future__ import annotations

import math

from torch import nn
from torch.optim import AdamW

from aladin.encoders.frozen import Freezable
from training.stage import ScheduleConfig, StageConfig
from training.tasks.parts import part_of
from training.tuning.layers import lr_factors


def build_optimizer(task: nn.Module, stage: StageConfig) -> AdamW:
    """Build AdamW over all trained parameters of a task.

    Args:
        task: its parameters that require a gradient are trained.
        stage: learning rates and weight decay; without decay AdamW is the papers' Adam.
    """
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
        ]
    )


def _layer_factors(task: nn.Module, stage: StageConfig) -> dict[str, float]:
    """Return the shares of the parameters of tuned encoders, by their names in the task."""
    factors: dict[str, float] = {}
    for prefix, module in task.named_modules():
        part = part_of(f"{prefix}.")
        if isinstance(module, Freezable) and part in stage.tune:
            of_encoder = lr_factors(module, stage.tune[part])
            factors |= {f"{prefix}.{name}": factor for name, factor in of_encoder.items()}
    return factors


def lr_factor(step: int, steps: int, steps_per_epoch: int, schedule: ScheduleConfig) -> float:
    """Return the share of the peak learning rate at a step.

    Args:
        step: counted from 0.
        steps: of the whole stage.
        steps_per_epoch: batches an epoch.
        schedule: its shape.
    """
    if step < schedule.warmup_steps:
        return (step + 1) / (schedule.warmup_steps + 1)
    if schedule.shape == "cosine":
        done = (step - schedule.warmup_steps) / max(1, steps - schedule.warmup_steps)
        return 0.5 * (1 + math.cos(math.pi * done))
    if schedule.shape == "step":
        return schedule.gamma ** (step // steps_per_epoch // schedule.step_epochs)
    return 1.0


def set_lr(optimizer: AdamW, lr: float) -> None:
    """Set the learning rate, each group by its own scale."""
    for group in optimizer.param_groups:
        group["lr"] = lr * group["scale"]
