"""Keeps a generation on the disk while somebody has it open."""

from __future__ import annotations

import fcntl
import os
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

from aladin.errors import IndexCorruptError
from index.changes.file_identity import FileIdentity, identity_of
from index.layout import generation_folder, live_generation
from index.manifest import MANIFEST


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
