"""Stages and runs for tests: settings, interruptions, earlier stages, and weights compared."""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file

from aladin_network.checkpoint_files import Checkpoint
from aladin_network.types import NullProgress
from aladin_training.batches.offline_negatives import OfflineNegatives
from aladin_training.config.stage import OfflineNegativesConfig, StageConfig, TaskConfig


def stage_of(batch_size: int, captions_per_photo: int | None = None, **more: Any) -> StageConfig:
    return StageConfig(
        name="a",
        tasks={"matching": TaskConfig(loss="triplet")},
        batch_size=batch_size,
        captions_per_photo=captions_per_photo,
        **more,
    )


class InterruptionError(Exception):
    """Stands for whatever ends a process between two steps."""


class InterruptAfter(NullProgress):
    """Interrupts the run after a number of optimizer steps, counted from its n-th stage on."""

    def __init__(self, steps: int, stage: int = 1) -> None:
        self.steps, self.stage = steps, stage
        self.unit = ""

    def start(self, total: int | None, unit: str) -> None:  # noqa: ARG002
        self.unit = unit
        self.stage -= unit == "steps"

    def advance(self, count: int = 1) -> None:
        if self.unit == "steps" and self.stage <= 0:
            self.steps -= count
            if self.steps < 0:
                raise InterruptionError


class Earlier:
    """Gives networks as the earlier stages of a run."""

    def __init__(self, **checkpoints: Checkpoint) -> None:
        self.checkpoints = checkpoints

    def checkpoint(self, stage: str) -> Checkpoint:
        """Return a copy, as a file would."""
        return copy.deepcopy(self.checkpoints[stage])

    def negatives(self, config: OfflineNegativesConfig) -> OfflineNegatives:
        raise NotImplementedError


def weights(run: Path, stage: str | None = None) -> dict[str, torch.Tensor]:
    folder = run if stage is None else run / "stages" / stage
    return load_file(folder / "checkpoint" / "model.safetensors")


def assert_same_weights(ours: Path, theirs: Path, stage: str | None = None) -> None:
    """Compare the weights of two runs bit by bit."""
    found, expected = weights(ours, stage), weights(theirs, stage)
    assert found.keys() == expected.keys()
    for name, value in found.items():
        assert torch.equal(value, expected[name]), name
