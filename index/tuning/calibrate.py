"""Stores a calibration in an index: a new generation with the files and changes of the live one."""

from __future__ import annotations

from pathlib import Path

from aladin.calibration.calibration import Calibration
from aladin.errors import IndexMismatchError
from index.disk import disk_errors, only_builder
from index.layout import generation_folder, live_generation
from index.manifest import read_manifest
from index.tuning.publish_entries import publish_entries


def store_calibration(root: Path, calibration: Calibration) -> int:
    """Make a generation live whose answers are judged by a calibration.

    Args:
        root: of the index.
        calibration: of the model that the index was built with.

    Returns:
        The number of the new generation.

    Raises:
        IndexNotReadyError: nothing was published yet.
        IndexMismatchError: it was fitted to the scores of another model.
        IndexWriteError: the disk is full or cannot be written, or a build is running.
    """
    live_generation(root)  # before a lock is made where there is no index
    with disk_errors(root), only_builder(root):
        manifest = read_manifest(generation_folder(root, live_generation(root)))
        if calibration.model_id != manifest.model.id:
            raise IndexMismatchError(f"{root}: model", manifest.model.id, calibration.model_id)
        return publish_entries(root, manifest, {}, "calibrate", calibration)
