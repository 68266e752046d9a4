"""Writing to disk during a build: one builder at a time, one error for a full disk."""

from __future__ import annotations

import fcntl
import shutil
import sqlite3
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import TextIO

from aladin_index.format.engine_location import ENGINE_FILE
from aladin_index.format.layout import (
    BUILD,
    CHANGES,
    CHANGES_LOCK,
    CURRENT,
    EVALUATIONS,
    GENERATIONS,
    LOCK,
    MODEL,
    PHOTOS,
    PUBLISHING,
    check_kept_in_files,
    generation_folder,
    live_generation,
)
from aladin_network.errors import ConfigError, IndexWriteError, UnwritableFolderError
from aladin_network.files import make_folder

# Files that an interrupted build or push may have left at the top of its folder.
_OWN_NAMES = frozenset(
    {
        *(BUILD, f"{BUILD}.discarded", CHANGES, CHANGES_LOCK, EVALUATIONS, GENERATIONS, LOCK),
        *(MODEL, PHOTOS, PUBLISHING),
    }
)
# Files in a folder that its owner considers empty.
_OF_SYSTEMS = frozenset(
    {"lost+found", ".DS_Store", "Thumbs.db", "desktop.ini", ".gitignore", ".gitkeep", ".keep"}
)


@contextmanager
def disk_errors(root: Path) -> Generator[None]:
    """Convert a failed write inside the block to `IndexWriteError`.

    Args:
        root: Index folder.
    """
    try:
        yield
    except OSError as error:
        # NumPy raises an error without a number if the disk takes only part of an array.
        path = error.filename or root
        raise _write_error(root, path, error.strerror or str(error)) from error
    except sqlite3.Error as error:
        raise _write_error(root, root, str(error)) from error


def check_folder(root: Path) -> None:
    """Reject a folder that contains something other than an index.

    Args:
        root: folder that an index is to be written to. It may be missing or empty, or hold an
            index, or what a build or a push left that was cut short.

    Raises:
        ConfigError: If it is a file, or contains something else, such as photos.
    """
    try:
        names = sorted(entry.name for entry in root.iterdir())
    except FileNotFoundError:
        return
    except NotADirectoryError:
        raise ConfigError(f"{root}: expected a folder, got a file") from None
    except OSError as error:
        raise UnwritableFolderError(root, error.strerror or str(error)) from error
    if CURRENT in names or ENGINE_FILE in names:
        return
    # Only a folder with a lock file is ours: others may have a folder named photos, too.
    known = _OWN_NAMES if LOCK in names else frozenset[str]()
    for name in names:
        partial = name.startswith(".") and name.endswith((".partial", ".old"))
        if name not in known and name not in _OF_SYSTEMS and not (LOCK in names and partial):
            raise ConfigError(
                f"{root}: expected a new folder, an empty one or an index, got a folder that holds "
                f"{name!r}; choose another folder"
            )


def lock_file(root: Path) -> TextIO:
    """Create the folder of an index if it is missing, and open its lock file.

    Raises:
        ConfigError: the folder holds something else.
        UnwritableFolderError: If the folder cannot be created, or is not writable.
    """
    check_folder(root)
    try:
        make_folder(root)
        return (root / LOCK).open("w")
    except OSError as error:
        raise UnwritableFolderError(root, error.strerror or str(error)) from error


@contextmanager
def only_builder(root: Path) -> Generator[None]:
    """Lock the index against other builds; the kernel releases the lock if the process dies.

    What a builder that was killed has left behind is removed first: partial files, and a
    generation that it did not make live.

    Args:
        root: Index folder; created.

    Raises:
        InputError: an engine keeps the index.
        ConfigError: the folder holds something else than an index.
        IndexWriteError: If another process is building it, or it is not writable.
    """
    check_kept_in_files(root)
    with lock_file(root) as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise IndexWriteError(root, "another build of this index is running") from None
        for leftover in root.glob(".*.partial"):
            if leftover.is_dir():
                shutil.rmtree(leftover)
            else:
                leftover.unlink()
        if (root / PUBLISHING).exists():
            _end_publishing(root)
        yield


def remove_folder(root: Path, folder: Path) -> None:
    """Remove a folder atomically; called by the only builder.

    Should the process be killed meanwhile, the next builder clears the rest.

    Args:
        root: Index folder.
        folder: e.g. of a generation; there.
    """
    doomed = root / f".{folder.parent.name}-{folder.name}.partial"
    shutil.rmtree(doomed, ignore_errors=True)
    folder.rename(doomed)
    shutil.rmtree(doomed)


def _end_publishing(root: Path) -> None:
    """Remove a generation that was not made live because its builder was killed."""
    generation = int((root / PUBLISHING).read_text(encoding="utf-8"))
    if not (root / CURRENT).exists() or live_generation(root) != generation:
        folder = generation_folder(root, generation)
        for leftover in (folder, root / CHANGES / folder.name):
            if leftover.exists():
                remove_folder(root, leftover)
    (root / PUBLISHING).unlink()


def _write_error(root: Path, path: Path | str, reason: str) -> IndexWriteError:
    is_live = (root / CURRENT).exists()
    state = "the live generation is as it was" if is_live else "nothing is live yet"
    again = "the command can be run again (a build with --resume)"
    return IndexWriteError(path, f"{reason}; {state}, and {again}")
