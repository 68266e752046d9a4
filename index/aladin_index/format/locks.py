"""Tells a file from another one that was put in its place, as a restored copy of an index is.

Writers of all processes take turns: those who change an index, and those who make one live.

Keeps a generation on the disk while somebody has it open.
"""

from __future__ import annotations

import fcntl
import os
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

from aladin_index.format.layout import CHANGES_LOCK, generation_folder, live_generation
from aladin_index.format.manifest import MANIFEST
from aladin_network.errors import IndexCorruptError


class FileIdentity(NamedTuple):
    """What no two files have in common while one of them exists or is open.

    Attributes:
        device: of the file system.
        inode: on it.
    """

    device: int
    inode: int


def identity_at(path: Path) -> FileIdentity | None:
    """Return the identity of what is at a path now; None: nothing is, or it cannot be reached."""
    try:
        state = path.stat()
    except OSError:
        return None
    return FileIdentity(state.st_dev, state.st_ino)


def identity_of(descriptor: int) -> FileIdentity:
    """Return the identity of an open file, wherever it has been moved to."""
    state = os.fstat(descriptor)
    return FileIdentity(state.st_dev, state.st_ino)


@contextmanager
def changes_lock(root: Path) -> Generator[None]:
    """Keep others from adding, from removing and from changing which generation is live.

    Waits for its turn; held for a moment, for no work is done inside that could be done before.
    Not to be entered twice. The kernel lets go when the process dies. Where the folder is replaced
    while this waits, it is the lock of the new folder that is held.

    Args:
        root: of an index that is there.

    Raises:
        OSError: the folder cannot be written.
    """
    path = root / CHANGES_LOCK
    while True:
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX)
            # The folder may have been replaced while this waited: the lock is then another file.
            if identity_of(descriptor) == identity_at(path):
                yield
                return
        finally:
            os.close(descriptor)


class GenerationLease:
    """A lock on a generation, shared with others; the kernel lets go when the process dies.

    Attributes:
        generation: its number.
    """

    def __init__(self, generation: int, descriptor: int) -> None:
        """Hold the lock that `descriptor` has, which is closed with it."""
        self.generation = generation
        self._descriptor: int | None = descriptor

    @property
    def place(self) -> FileIdentity | None:
        """What tells the generation's files from a copy of them; None once it is released."""
        return None if self._descriptor is None else identity_of(self._descriptor)

    def release(self) -> None:
        """Let go; a second time changes nothing."""
        descriptor, self._descriptor = self._descriptor, None
        if descriptor is not None:
            os.close(descriptor)


def lease_live_generation(root: Path) -> GenerationLease:
    """Find the live generation, and share a lock under which nobody removes it.

    Raises:
        IndexNotReadyError: nothing was published yet.
        IndexCorruptError: CURRENT names no generation, or it has no manifest.
    """
    while True:
        generation = live_generation(root)
        path = generation_folder(root, generation) / MANIFEST
        try:
            descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        except OSError as error:
            if live_generation(root) != generation:
                continue
            raise IndexCorruptError(path, f"cannot be read ({error.strerror})") from error
        fcntl.flock(descriptor, fcntl.LOCK_SH)
        # Only what is not live is removed: replaced in between, it may be gone already.
        if live_generation(root) == generation:
            return GenerationLease(generation, descriptor)
        os.close(descriptor)


def lease_generation(root: Path, generation: int) -> GenerationLease:
    """Share a lock on a generation that need not be live any more.

    Raises:
        IndexCorruptError: it is not on the disk, or was removed in this moment.
    """
    path = generation_folder(root, generation) / MANIFEST
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except OSError as error:
        raise IndexCorruptError(path, f"cannot be read ({error.strerror})") from error
    fcntl.flock(descriptor, fcntl.LOCK_SH)
    if os.fstat(descriptor).st_nlink == 0:
        os.close(descriptor)
        raise IndexCorruptError(path, "was removed")
    return GenerationLease(generation, descriptor)


@contextmanager
def sole_use(root: Path, generation: int) -> Generator[bool]:
    """Try to get a generation that is not live for oneself.

    Yields:
        Whether nobody has it open; nobody will then, until the end of the block.
    """
    path = generation_folder(root, generation) / MANIFEST
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except FileNotFoundError:  # what is left of one whose removal was cut short
        yield True
        return
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        yield False
    else:
        yield True
    finally:
        os.close(descriptor)
