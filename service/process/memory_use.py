"""How much memory a process holds, read from ``/proc``."""

from __future__ import annotations

import os
from pathlib import Path
from typing import NamedTuple

_PROC = Path("/proc")


class ProcessMemory(NamedTuple):
    """Memory of a process that is in RAM now, in bytes.

    Attributes:
        own: what nobody else has: its objects, its buffers. A leak shows here.
        shared: files that it maps, the index above all; processes that map the same file share
            it, so a sum over processes counts it more than once.
    """

    own: int
    shared: int


def process_memory(pid: int) -> ProcessMemory | None:
    """Measure a process.

    Args:
        pid: of the process.

    Returns:
        None where it cannot be told: the process has ended, or this system has no ``/proc``.
    """
    try:
        fields = (_PROC / str(pid) / "statm").read_text(encoding="ascii").split()
    except OSError:
        return None
    page_bytes = os.sysconf("SC_PAGE_SIZE")
    resident, shared = (int(pages) * page_bytes for pages in fields[1:3])
    return ProcessMemory(own=resident - shared, shared=shared)
