"""A stage of one task, for tests of what else a stage says."""

from __future__ import annotations

from typing import Any

from aladin_training.config.stage import StageConfig, TaskConfig


def stage_of(batch_size: int, captions_per_photo: int | None = None, **more: Any) -> StageConfig:
    """Return a stage that trains the matching score."""
    return StageConfig(
        name="a",
        tasks={"matching": TaskConfig(loss="triplet")},
        batch_size=batch_size,
        captions_per_photo=captions_per_photo,
        **more,
    )
