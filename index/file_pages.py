"""What the system keeps of a file in memory."""

from __future__ import annotations

import os
from pathlib import Path


def read_ahead(path: Path) -> None:
    """Ask the system to read a file into memory; on systems that cannot be asked, do nothing."""
    if not hasattr(os, "posix_fadvise"):
        return
    file = os.open(path, os.O_RDONLY)
    try:
        os.posix_fadvise(file, 0, 0, os.POSIX_FADV_WILLNEED)
    finally:
        os.close(file)
