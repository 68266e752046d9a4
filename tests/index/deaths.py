"""Processes that die by SIGKILL at a chosen place.

Forked from one process that has imported everything, because imports take most of the time of a
small build. That process must not start threads, which a fork would lack.
"""

from __future__ import annotations

import os
import shutil
import signal
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

from aladin_index.changes import writable
from aladin_index.generations import collection_writer
from aladin_network.checkpoint import load_checkpoint
from aladin_network.encoders import hf_image, hf_text
from aladin_network.types import NullProgress

# What each fork would import by itself, for seconds.
IMPORTED = (load_checkpoint, hf_image, hf_text)


class Death(NamedTuple):
    """Where a process dies.

    Attributes:
        place: Name of the function whose calls are counted: of `os`, `shutil`, `Path`, the
            progress, or a module of the index.
        at: Number of the call before which the process dies.
    """

    place: str
    at: int


class Deadly:
    """Dies by SIGKILL at the n-th call, before doing anything."""

    def __init__(self, function: Callable[..., Any], at: int) -> None:
        self._function = function
        self._left = at

    def __call__(self, *arguments: Any, **options: Any) -> Any:
        self._left -= 1
        if self._left == 0:
            os.kill(os.getpid(), signal.SIGKILL)
        return self._function(*arguments, **options)


def arm(death: Death, progress: NullProgress) -> None:
    """Make this process die at a place."""
    owner: Any = {
        "advance": progress,
        "fsync": os,
        "rmtree": shutil,
        "write_items": collection_writer,
        "insert_items": writable,
    }.get(death.place, Path)
    deadly = Deadly(getattr(owner, death.place), death.at)
    if owner is not Path:
        setattr(owner, death.place, deadly)
        return

    # A function, since a method is bound to its path.
    def move(path: Path, target: Path) -> object:
        return deadly(path, target)

    setattr(Path, death.place, move)


def in_a_process(work: Callable[[], None]) -> int:
    """Run in a forked process and return the signal that killed it, or 0."""
    child = os.fork()
    if child == 0:
        status = 1
        try:
            work()
            status = 0
        except BaseException:
            traceback.print_exc()
        finally:
            os._exit(status)
    _, status = os.waitpid(child, 0)
    if os.WIFEXITED(status) and os.WEXITSTATUS(status) != 0:
        raise SystemExit("a process failed by itself")
    return os.WTERMSIG(status) if os.WIFSIGNALED(status) else 0
