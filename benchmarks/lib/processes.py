"""Peak resident memory of this process.

A process that is forked from one which has imported everything, and talks through a pipe.
"""

from __future__ import annotations

import os
import resource
import sys
import traceback
from collections.abc import Callable, Iterator
from pathlib import Path

_STATUS = Path("/proc/self/status")


def peak_rss_bytes() -> int:
    """Return the most memory this process has had resident, mapped file pages included."""
    if _STATUS.exists():
        # getrusage would count what the parent had at the moment of the fork, too.
        for line in _STATUS.read_text(encoding="ascii").splitlines():
            if line.startswith("VmHWM:"):
                return int(line.split()[1]) * 1024
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak if sys.platform == "darwin" else peak * 1024


def forked(work: Callable[[Callable[[str], None]], None]) -> tuple[int, Iterator[str]]:
    """Run in a forked process, for imports take longer than all that is measured.

    Args:
        work: given a function that says a line.

    Returns:
        The process, and its lines as they come.
    """
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(reading)
        try:
            work(lambda line: _say(writing, line))
        except BaseException:
            traceback.print_exc()
            os._exit(1)
        os._exit(0)
    os.close(writing)
    return child, _lines_of(reading)


def _say(descriptor: int, line: str) -> None:
    os.write(descriptor, f"{line}\n".encode())  # one write: a kill cannot cut the line


def _lines_of(descriptor: int) -> Iterator[str]:
    with os.fdopen(descriptor, encoding="utf-8") as lines:
        for line in lines:
            yield line.rstrip("\n")
