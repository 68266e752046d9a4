"""Tells a file from another one that was put in its place, as a restored copy of an index is."""

from __future__ import annotations

import os
from pathlib import Path
from typing import NamedTuple


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
