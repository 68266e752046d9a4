"""Republishes the live generation with other manifest entries or another calibration.

The new generation shares the files of the live one, and has its changes.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

from aladin_index.format.disk import disk_errors, only_builder
from aladin_index.format.layout import (
    NEW_GENERATION,
    generation_folder,
    live_generation,
    published_generations,
)
from aladin_index.format.manifest import (
    CollectionEntry,
    MadeBy,
    Manifest,
    read_manifest,
    write_manifest,
)
from aladin_index.generations.history import with_changes_of
from aladin_index.generations.writer import publish_generation
from aladin_network.calibration.calibration import Calibration
from aladin_network.errors import IndexMismatchError
from aladin_network.types import Target


def publish_entries(
    root: Path,
    manifest: Manifest,
    entries: Mapping[Target, CollectionEntry],
    made_by: MadeBy,
    calibration: Calibration | None = None,
) -> int:
    """Publish a generation with the files and the changes of the previous one.

    To be called by the only builder of the index (`aladin_index.format.disk.only_builder`).

    Args:
        root: Index folder.
        manifest: Manifest of the live generation.
        entries: Collection entries that replace those of the manifest.
        made_by: Operation that makes the generation; recorded in the manifest.
        calibration: Calibration fitted to this index that replaces the manifest's, or None to keep
            the existing one.

    Returns:
        The number of the new generation.

    Raises:
        OSError: If the disk is full or cannot be written.
        sqlite3.Error: If the database of the changes finds that the disk is full or cannot be
            written.
    """
    generation = max(published_generations(root)) + 1
    old = generation_folder(root, manifest.generation)
    folder = root / NEW_GENERATION
    shutil.rmtree(folder, ignore_errors=True)
    for name in manifest.files:
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        _share(old / name, folder / name)
    new = replace(
        manifest,
        generation=generation,
        made_by=made_by,
        images=entries.get("images", manifest.images),
        texts=entries.get("texts", manifest.texts),
        calibration=calibration or manifest.calibration,
        fitted_photos_indexed=None if calibration else manifest.fitted_photos_indexed,
    )
    write_manifest(folder, new)
    publish_generation(root, folder, generation, with_changes_of(root, manifest.generation))
    return generation


def _share(source: Path, copy: Path) -> None:
    """Create a hard link to a file, or a copy if the file system does not support hard links."""
    try:
        os.link(source, copy)
    except OSError:
        shutil.copyfile(source, copy)


def store_calibration(root: Path, calibration: Calibration) -> int:
    """Publish a generation with a calibration that judges its answers.

    Args:
        root: Index folder.
        calibration: Calibration of the model that the index was built with.

    Returns:
        The number of the new generation.

    Raises:
        IndexNotReadyError: If no generation was published yet.
        IndexMismatchError: If the calibration was fitted to the scores of another model.
        IndexWriteError: If the disk is full or cannot be written, or a build is running.
    """
    live_generation(root)  # before a lock is made where there is no index
    with disk_errors(root), only_builder(root):
        manifest = read_manifest(generation_folder(root, live_generation(root)))
        if calibration.model_id != manifest.model.id:
            raise IndexMismatchError(f"{root}: model", manifest.model.id, calibration.model_id)
        return publish_entries(root, manifest, {}, "calibrate", calibration)
