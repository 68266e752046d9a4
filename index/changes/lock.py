"""Writers of all processes take turns: those who change an index, and those who make one live."""

from __future__ import annotations

import fcntl
import os
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

from index.layout import CHANGES_LOCK


@contextmanager
def changes_lock(root: Path) -> Generator[None]:
    """Keep others from adding, from removing and from changing which generation is live.

    Waits for its turn; held for a moment, for no work is done inside that could be done before.
    Not to be entered twice. The kernel lets go when the process dies.

    Args:
        root: of an index that is there.

    Raises:
        OSError: the folder cannot be written.
    """
    descriptor = os.open(root / CHANGES_LOCK, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)
