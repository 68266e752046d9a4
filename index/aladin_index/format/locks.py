"""File locks of an index, and the identity of files.

Writers of all processes are serialised: those that change an index, and those that make a
generation live. A shared lock keeps a generation on disk while a reader has it open. Identities
distinguish a file from another one that has replaced it, such as a restored copy of an index.
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

    Waits for its turn; held for a moment, for no work is done inside that could be done before.
    Not to be entered twice. The kernel lets go when the process dies. Where the folder is replaced
    while this waits, it is the lock of the new folder that is held.

    Args:
        root: Folder of an existing index.

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
    """A shared lock on a generation; the kernel releases it if the process dies.

    Attributes:
        generation: its number.
    """

    def __init__(self, generation: int, descriptor: int) -> None:
        """Hold the lock of `descriptor`, which is closed on release."""
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
    """Find the live generation, and hold a shared lock that prevents its removal.

    Raises:
        IndexNotReadyError: If nothing was published yet.
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
        # Only generations that are not live are removed: if replaced meanwhile, it may be gone.
        if live_generation(root) == generation:
            return GenerationLease(generation, descriptor)
        os.close(descriptor)


def lease_generation(root: Path, generation: int) -> GenerationLease:
    """Hold a shared lock on a generation, live or not.

    Raises:
        IndexCorruptError: If it is not on disk, or was removed at this moment.
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
    """Try to lock exclusively a generation that is not live.

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
