"""Writing to the disk as a build does it: one builder at a time, one error for a full disk."""

from __future__ import annotations

import fcntl
import shutil
import sqlite3
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

from aladin.errors import IndexWriteError
from index.layout import (
    CHANGES,
    CURRENT,
    LOCK,
    PUBLISHING,
    check_kept_in_files,
    generation_folder,
    live_generation,
)


@contextmanager
def disk_errors(root: Path) -> Generator[None]:
    """Turn a write that failed inside the block into `IndexWriteError`.

    Args:
        root: of the index.
    """
    try:
        yield
    except OSError as error:
        # NumPy raises without an error number when the disk takes only part of an array.
        raise _write_error(error.filename or root, error.strerror or str(error)) from error
    except sqlite3.Error as error:
        raise _write_error(root, str(error)) from error


@contextmanager
def only_builder(root: Path) -> Generator[None]:
    """Keep other builds of the same index out; the kernel lets go when the process dies.

    What a builder that was killed has left behind is removed first: partial files, and a
    generation that it did not make live.

    Args:
        root: of the index; created.

    Raises:
        InputError: an engine keeps the index.
        IndexWriteError: another process is building it.
    """
    check_kept_in_files(root)
    root.mkdir(parents=True, exist_ok=True)
    with (root / LOCK).open("w") as lock:
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
    """Remove a folder in one step; called by the only builder.

    Should the process be killed meanwhile, the next builder clears the rest.

    Args:
        root: of the index.
        folder: e.g. of a generation; there.
    """
    doomed = root / f".{folder.parent.name}-{folder.name}.partial"
    shutil.rmtree(doomed, ignore_errors=True)
    folder.rename(doomed)
    shutil.rmtree(doomed)


def _end_publishing(root: Path) -> None:
    """Remove a generation that its builder did not make live, for it was killed."""
    generation = int((root / PUBLISHING).read_text(encoding="utf-8"))
    if not (root / CURRENT).exists() or live_generation(root) != generation:
        folder = generation_folder(root, generation)
        for leftover in (folder, root / CHANGES / folder.name):
            if leftover.exists():
                remove_folder(root, leftover)
    (root / PUBLISHING).unlink()


def _write_error(path: Path | str, reason: str) -> IndexWriteError:
    return IndexWriteError(
        path,
        f"{reason}; the live generation is as it was, and the command can be run again (a build "
        "with --resume)",
    )
