"""What is fitted to a checkpoint's weights, in files beside them: a correction and a calibration.

Probabilities are those of scores that are corrected alike: a calibration is used with the hubness
correction that it was fitted with, or without one if there was none. So both are read, copied and
dropped together. A calibration records the correction in `FittedOn.correction`.
"""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import NamedTuple

from aladin_network.calibration.calibration import CALIBRATION, Calibration, read_calibration
from aladin_network.errors import CheckpointError
from aladin_network.scoring.hub_correction import (
    CORRECTION,
    CorrectionConstants,
    HubCorrection,
    read_correction,
)

# Recorded by a calibration of scores without a correction.
UNCORRECTED = "none"


class FittedFiles(NamedTuple):
    """What is fitted to the weights of a checkpoint."""

    calibration: Calibration | None = None
    correction: HubCorrection | None = None


def correction_id(constants: CorrectionConstants | None) -> str:
    """Return the name by which a calibration records the correction of its scores."""
    return UNCORRECTED if constants is None else constants.id


def is_fitted_with(calibration: Calibration, constants: CorrectionConstants | None) -> bool:
    """Tell whether a calibration is one of scores with a correction.

    Args:
        calibration: Any calibration of the same weights.
        constants: Constants of the correction, or None for scores without one.
    """
    return calibration.fitted_on.correction == correction_id(constants)


def read_fitted(folder: Path, model_id: str) -> FittedFiles:
    """Read what is fitted to the weights of a checkpoint.

    Args:
        folder: Checkpoint folder.
        model_id: Id of the checkpoint's weights.

    Raises:
        CheckpointError: If a file cannot be read or belongs to other weights, or the calibration
            was fitted with another correction than the one beside it.
    """
    calibration = read_calibration(folder, model_id)
    correction = read_correction(folder, model_id)
    constants = None if correction is None else correction.constants
    if calibration is not None and not is_fitted_with(calibration, constants):
        raise CheckpointError(
            f"{folder / CALIBRATION}: expected a calibration of the scores with the hubness "
            f"correction {correction_id(constants)!r}, found one of "
            f"{calibration.fitted_on.correction!r}; fit it anew: aladin calibrate"
        )
    return FittedFiles(calibration, correction)


def copy_fitted(source: Path, folder: Path, model_id: str) -> None:
    """Copy what is fitted to the weights of a checkpoint to a copy of these weights.

    Args:
        source: Checkpoint folder.
        folder: Folder with the same weights; what is fitted there is replaced.
        model_id: Id of the weights.

    Raises:
        CheckpointError: See `read_fitted`; nothing is changed.
        OSError: If the folder cannot be written.
    """
    fitted = read_fitted(source, model_id)
    if source.resolve() == folder.resolve():
        return
    for name in (CALIBRATION, CORRECTION):
        (folder / name).unlink(missing_ok=True)
    # The calibration last: an interruption leaves none, rather than one without its correction.
    if fitted.correction is not None:
        shutil.copyfile(source / CORRECTION, folder / CORRECTION)
    if fitted.calibration is not None:
        shutil.copyfile(source / CALIBRATION, folder / CALIBRATION)


def store_correction(folder: Path, correction: HubCorrection) -> bool:
    """Store a correction with its checkpoint, and remove the calibration of the other scores.

    Args:
        folder: Checkpoint folder.
        correction: Correction of the weights in the folder; an older one is replaced.

    Returns:
        Whether there was a calibration.

    Raises:
        OSError: If the folder cannot be written.
    """
    calibration = folder / CALIBRATION
    is_calibrated = calibration.exists()
    # First: an interruption leaves no probabilities of scores that are now corrected otherwise.
    calibration.unlink(missing_ok=True)
    correction.save(folder / CORRECTION)
    return is_calibrated
