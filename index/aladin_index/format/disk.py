"""Writing to an index folder: file locks, file identities, and errors of the disk.

One process builds at a time. Writers of all processes are serialised: those that change an index,
and those that make a generation live. A shared lock keeps a generation on disk while a reader has
it open. Identities distinguish a file from another one that has replaced it, such as a restored
copy of an index. A failed write, on a full disk for example, is reported as one kind of error.
"""

from __future__ import annotations

import fcntl
import logging
import os
import shutil
import sqlite3
from collections.abc import Generator
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import NamedTuple, TextIO

from aladin_index.format.layout import (
    BUILD,
    CHANGES,
    CHANGES_LOCK,
    CURRENT,
    ENGINE_FILE,
    GENERATIONS,
    LOCK,
    MODEL,
    MODELS,
    PHOTOS,
    PUBLISHING,
    UPGRADE,
    check_kept_in_files,
    generation_folder,
    live_generation,
)
from aladin_index.format.manifest import MANIFEST
from aladin_network.errors import (
    ConfigError,
    IndexCorruptError,
    IndexWriteError,
    UnwritableFolderError,
)
from aladin_network.files import is_without_locks, lock_to_write, make_folder

logger = logging.getLogger(__name__)

# Files that an interrupted build or push may have left at the top of its folder.
_OWN_NAMES = frozenset(
    {
        *(BUILD, f"{BUILD}.discarded", CHANGES, CHANGES_LOCK, GENERATIONS, LOCK),
        *(MODEL, MODELS, PHOTOS, PUBLISHING, UPGRADE),
    }
)
# Files in a folder that its owner considers empty.
_OF_SYSTEMS = frozenset(
    {"lost+found", ".DS_Store", "Thumbs.db", "desktop.ini", ".gitignore", ".gitkeep", ".keep"}
)


@contextmanager
def disk_errors(root: Path) -> Generator[None]:
    """Convert a failed write inside the block to `IndexWriteError`."""
    try:
        yield
    except OSError as error:
        # NumPy raises an error without a number if the disk takes only part of an array.
        path = error.filename or root
        if is_without_locks(error):
            raise IndexWriteError(path, str(error.strerror)) from error
        raise _write_error(root, path, error.strerror or str(error)) from error
    except sqlite3.Error as error:
        raise _write_error(root, root, str(error)) from error


def check_folder(root: Path) -> None:
    """Reject a folder that contains something other than an index or the rest of a killed build."""
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
                f"{root}: expected a new folder, an empty one or an index, got a folder that "
                f"contains {name!r}; choose another folder"
            )


def lock_file(root: Path) -> TextIO:
    """Create the folder of an index if it is missing, and open its lock file."""
    check_folder(root)
    try:
        make_folder(root)
        return (root / LOCK).open("w")
    except OSError as error:
        raise UnwritableFolderError(root, error.strerror or str(error)) from error


@contextmanager
def only_builder(root: Path) -> Generator[None]:
    """Lock the index against other builds; the kernel releases the lock if the process dies.

    What a builder that was killed has left behind is removed first: partial files, and a generation
    that it did not make live.
    """
    check_kept_in_files(root)
    with lock_file(root) as lock:
        try:
            lock_to_write(lock.fileno(), root, wait=False)
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
    state = "the live generation is unchanged" if is_live else "no generation is live yet"
    again = "the command can be run again (`aladin index build` with --resume)"
    return IndexWriteError(path, f"{reason}; {state}, and {again}")


class FileIdentity(NamedTuple):
    """Identity of a file, unique while the file exists or is open.

    Attributes:
        device: Device number of the file system.
        inode: Inode number on that file system.
    """

    device: int
    inode: int


def identity_at(path: Path) -> FileIdentity | None:
    """Return the identity of the file at a path, or None if there is none within reach."""
    try:
        state = path.stat()
    except OSError:
        return None
    return FileIdentity(state.st_dev, state.st_ino)


def identity_of(descriptor: int) -> FileIdentity:
    """Return the identity of an open file, even if it was moved."""
    state = os.fstat(descriptor)
    return FileIdentity(state.st_dev, state.st_ino)


@contextmanager
def changes_lock(root: Path) -> Generator[None]:
    """Lock the index against additions, deletions and changes of the live generation.

    Blocks until the lock is free. Do all preparation before entering; not re-entrant. The kernel
    releases the lock if the process dies. If the folder is replaced while this waits, the lock of
    the new folder is held.
    """
    path = root / CHANGES_LOCK
    while True:
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)
        try:
            lock_to_write(descriptor, root)
            # The folder may have been replaced while this waited: the lock is then another file.
            if identity_of(descriptor) == identity_at(path):
                yield
                return
        finally:
            os.close(descriptor)


def has_locks(file: Path, root: Path) -> bool:
    """Return whether the disk lets processes lock parts of files, as SQLite does; say if not."""
    try:
        descriptor = os.open(file, os.O_RDONLY | os.O_CLOEXEC)
    except OSError:  # whoever reads it reports it
        return True
    try:
        fcntl.lockf(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except OSError as error:
        if is_without_locks(error):
            _say_without_locks(root, error.strerror)
            return False
    finally:
        os.close(descriptor)
    return True


def _share(descriptor: int, root: Path) -> None:
    """Take a shared lock; where the disk has none, say so and go on."""
    try:
        fcntl.flock(descriptor, fcntl.LOCK_SH)
    except OSError as error:
        if not is_without_locks(error):
            raise
        _say_without_locks(root, error.strerror)


@cache
def _say_without_locks(root: Path, reason: str) -> None:
    logger.warning(
        "%s: this disk has no file locks (%s): the index can be read, not written here; do not "
        "compact it from elsewhere meanwhile",
        root,
        reason,
    )


class GenerationLease:
    """A shared lock on a generation; the kernel releases it if the process dies.

    Attributes:
        generation: Number of the generation.
    """

    def __init__(self, generation: int, descriptor: int) -> None:
        self.generation = generation
        self._descriptor: int | None = descriptor

    @property
    def place(self) -> FileIdentity | None:
        """Identity of the generation's files, other than of a copy; None once released."""
        return None if self._descriptor is None else identity_of(self._descriptor)

    def release(self) -> None:
        """Release the lock; repeated calls have no effect."""
        descriptor, self._descriptor = self._descriptor, None
        if descriptor is not None:
            os.close(descriptor)


def lease_live_generation(root: Path) -> GenerationLease:
    """Find the live generation, and hold a shared lock that prevents its removal."""
    while True:
        generation = live_generation(root)
        path = generation_folder(root, generation) / MANIFEST
        try:
            descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        except OSError as error:
            if live_generation(root) != generation:
                continue
            raise IndexCorruptError(path, f"cannot be read ({error.strerror})") from error
        _share(descriptor, root)
        # Only generations that are not live are removed: if replaced meanwhile, it may be gone.
        if live_generation(root) == generation:
            return GenerationLease(generation, descriptor)
        os.close(descriptor)


def lease_generation(root: Path, generation: int) -> GenerationLease:
    """Hold a shared lock on a generation, live or not."""
    path = generation_folder(root, generation) / MANIFEST
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except OSError as error:
        raise IndexCorruptError(path, f"cannot be read ({error.strerror})") from error
    _share(descriptor, root)
    if os.fstat(descriptor).st_nlink == 0:
        os.close(descriptor)
        raise IndexCorruptError(path, "was removed")
    return GenerationLease(generation, descriptor)


@contextmanager
def sole_use(root: Path, generation: int) -> Generator[bool]:
    """Try to lock exclusively a generation that is not live; yields whether nobody has it open."""
    path = generation_folder(root, generation) / MANIFEST
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except FileNotFoundError:  # what is left of one whose removal was cut short
        yield True
        return
    try:
        lock_to_write(descriptor, root, wait=False)
    except BlockingIOError:
        yield False
    else:
        yield True
    finally:
        os.close(descriptor)


def read_file_ahead(path: Path) -> None:
    """Ask the system to read a file into memory; do nothing if it does not support this."""
    if not hasattr(os, "posix_fadvise"):
        return
    file = os.open(path, os.O_RDONLY)
    try:
        os.posix_fadvise(file, 0, 0, os.POSIX_FADV_WILLNEED)
    finally:
        os.close(file)
