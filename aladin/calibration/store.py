"""The calibration of a checkpoint, in a file of its own beside the weights."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from aladin.atomic import write_json
from aladin.calibration.calibration import Calibration
from aladin.checkpoint import read_model_id
from aladin.errors import CheckpointError, ConfigError
from aladin.strict_config import dump_config, parse_config

# No part of the checkpoint itself: an index takes over what it says, not the file.
CALIBRATION = "calibration.json"


def write_calibration(folder: Path, calibration: Calibration) -> None:
    """Store a calibration in its checkpoint, whole; an older one is replaced.

    Args:
        folder: of the checkpoint.
        calibration: fitted to the scores of its weights.

    Raises:
        CheckpointError: it was fitted to other weights, or the folder cannot be written.
    """
    _check_model(folder / CALIBRATION, calibration, read_model_id(folder))
    try:
        write_json(folder / CALIBRATION, dump_config(calibration))
    except OSError as error:
        reason = f"cannot be written ({error.strerror})"
        raise CheckpointError(f"{folder / CALIBRATION}: {reason}") from error


def read_calibration(folder: Path, model_id: str) -> Calibration | None:
    """Read the calibration of a checkpoint.

    Args:
        folder: of the checkpoint.
        model_id: of its weights.

    Returns:
        None where the checkpoint is not calibrated.

    Raises:
        CheckpointError: the file is no calibration, or one of other weights.
    """
    path = folder / CALIBRATION
    try:
        data: Any = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return None
    except (OSError, ValueError) as error:
        raise CheckpointError(f"{path}: cannot be read ({error})") from error
    if not isinstance(data, dict):
        raise CheckpointError(f"{path}: expected a calibration, found {type(data).__name__}")
    try:
        calibration = parse_config(Calibration, data, str(path))
    except ConfigError as error:
        raise CheckpointError(str(error)) from error
    _check_model(path, calibration, model_id)
    return calibration


def _check_model(path: Path, calibration: Calibration, model_id: str) -> None:
    if calibration.model_id != model_id:
        raise CheckpointError(
            f"{path}: expected a calibration of model {model_id}, found one of "
            f"{calibration.model_id}; fit it anew: aladin calibrate"
        )
