"""A process that is forked from one which has imported everything, and talks through a pipe."""

from __future__ import annotations

import os
import traceback
from collections.abc import Callable, Iterator


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
