"""Folder of an index in a vector database: model, uploaded photos, and location."""

from __future__ import annotations

import fcntl
import shutil
from collections.abc import Generator, Iterable
from contextlib import contextmanager
from pathlib import Path

from aladin_index.format.disk import lock_file
from aladin_index.format.engine_location import EngineLocation, write_location
from aladin_index.format.layout import CURRENT, MODEL
from aladin_index.format.manifest import ModelEntry, check_lengths, describe_files
from aladin_index.items.tables import StoredItem
from aladin_network.errors import ConfigError, IndexCorruptError, IndexWriteError
from aladin_network.files import atomic_file, atomic_folder, make_folder


@contextmanager
def only_pusher(folder: Path) -> Generator[None]:
    """Lock the folder against other pushes, and convert errors of the disk.

    Args:
        folder: created.

    Raises:
        ConfigError: an index of files is there, or something else.
        IndexWriteError: If another process pushes to it, or the disk cannot be written.
    """
    if (folder / CURRENT).exists():
        raise ConfigError(f"{folder}: expected a folder of its own, got an index of files")
    try:
        with lock_file(folder) as lock:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                raise IndexWriteError(folder, "another push to this folder is running") from None
            yield
    except OSError as error:
        reason = f"{error.strerror or error}; what is live in the engine is as it was"
        raise IndexWriteError(error.filename or folder, reason) from error


def copy_photos(source: Path, folder: Path, items: Iterable[StoredItem]) -> None:
    """Copy the photos that were uploaded: only the index has them.

    Args:
        source: the index's folder.
        folder: the new one.
        items: Items of the index; their photos are named by the hash of their content.
    """
    for item in items:
        if item.path is None or Path(item.path).is_absolute() or (folder / item.path).exists():
            continue
        make_folder((folder / item.path).parent)
        with atomic_file(folder / item.path) as partial:
            shutil.copyfile(source / item.path, partial)


def write_folder(source: Path, folder: Path, model: ModelEntry, location: EngineLocation) -> None:
    """Write the model and the location of the index, each atomically.

    Args:
        source: the index's folder.
        folder: the new one.
        model: Model of the index.
        location: Location of the index in the vector database.
    """
    if not _has_model(folder, model):
        with atomic_folder(folder / MODEL) as partial:
            for name in model.files:
                shutil.copyfile(source / MODEL / name, partial / name)
    write_location(folder, location)


def _has_model(folder: Path, model: ModelEntry) -> bool:
    """Whether the folder has all files of a model with the same content."""
    try:
        check_lengths(folder / MODEL, model.files)
    except IndexCorruptError:
        return False
    return describe_files(folder / MODEL, model.files) == model.files
