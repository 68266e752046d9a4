"""Optimizer and learning-rate schedule of a stage."""

from __future__ import annotations

import math

from torch import nn
from torch.optim import AdamW

from training.stage import ScheduleConfig, StageConfig
from training.tasks.parts import part_of


def build_optimizer(task: nn.Module, stage: StageConfig) -> AdamW:
    """Build AdamW over all trained parameters of a task.

    Args:
        task: its parameters that require a gradient are trained.
        stage: learning rates and weight decay; without decay AdamW is the papers' Adam.
    """
    groups: dict[tuple[float, float], list[nn.Parameter]] = {}
    for name, parameter in task.named_parameters():
        if not parameter.requires_grad:
            continue
        part = part_of(name)
        scale = stage.lr_scale.get(part, 1.0) if part else 1.0
        decay = stage.weight_decay if parameter.ndim > 1 else 0.0
        groups.setdefault((scale, decay), []).append(parameter)
    return AdamW(
        [
            {"params": parameters, "lr": stage.lr * scale, "scale": scale, "weight_decay": decay}
            for (scale, decay), parameters in groups.items()
        ]
    )


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
