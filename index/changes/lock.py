"""Writers of all processes take turns: those who change an index, and those who make one live."""

from __future__ import annotations

import fcntl
import os
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

from index.changes.file_identity import identity_at, identity_of
from index.layout import CHANGES_LOCK


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
    descriptor = _locked(root / CHANGES_LOCK)
    try:
        yield
    finally:
        os.close(descriptor)


def _locked(path: Path) -> int:
    """Return a descriptor that has the lock of the file that is at a path."""
    while True:
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX)
            if identity_of(descriptor) == identity_at(path):
                return descriptor
        except BaseException:
            os.close(descriptor)
            raise
        os.close(descriptor)
