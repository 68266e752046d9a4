"""What a finished stage left about itself: its steps, its time and its validation curve."""

from __future__ import annotations

import json
from pathlib import Path
from typing import NamedTuple

from aladin.errors import CheckpointError
from training.run import read_validation


class StageFacts(NamedTuple):
    """What a stage took, and what it reached.

    Attributes:
        steps: of the optimizer.
        minutes: for batches, steps and validation.
        parameters: numbers that were trained.
        rsum: on the validation split at the stage's end, by score name.
    """

    steps: int
    minutes: float
    parameters: int
    rsum: dict[str, float]


def read_stage(run: Path, stage: str) -> StageFacts:
    """Read the facts of a finished stage.

    Args:
        run: folder of the run.
        stage: its name.

    Raises:
        CheckpointError: the stage's record is missing or cannot be read.
    """
    folder = run / "stages" / stage
    path = folder / "timing.json"
    try:
        timing = json.loads(path.read_text(encoding="utf-8"))
        seconds = timing["data_s"] + timing["step_s"] + timing["validation_s"]
        rsum = {name: each.rsum for name, each in read_validation(folder).items()}
        return StageFacts(timing["steps"], seconds / 60, timing["parameters"], rsum)
    except (OSError, ValueError, KeyError) as error:
        raise CheckpointError(f"{folder}: not a finished stage ({error!r})") from error


def validation_curve(run: Path, stage: str, score: str) -> dict[int, float]:
    """Read the validation rsum of a score by step of a stage, from the stage's log.

    Args:
        run: folder of the run.
        stage: its name.
        score: e.g. "matching".
    """
    key = f"{score}_rsum"
    lines = (run / "stages" / stage / "log.jsonl").read_text(encoding="utf-8").splitlines()
    entries = [json.loads(line) for line in lines]
    return {entry["step"]: entry[key] for entry in entries if key in entry}
