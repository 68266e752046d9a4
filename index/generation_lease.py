"""Keeps a generation on the disk while somebody has it open."""

from __future__ import annotations

import fcntl
import os
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

from aladin.errors import IndexCorruptError
from index.layout import generation_folder, live_generation
from index.manifest import MANIFEST


def lease_live_generation(root: Path) -> tuple[int, int]:
    """Find the live generation, and share a lock on it that nobody removes it under.

    Returns:
        Its number, and the descriptor that holds the lock until it is closed; the kernel lets go
        of it too when the process dies.

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
            return generation, descriptor
        os.close(descriptor)


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
