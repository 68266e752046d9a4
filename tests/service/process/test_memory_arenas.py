"""The C library's arenas, counted in a process of its own."""

from __future__ import annotations

import ctypes
import subprocess
import sys

import pytest

# Prints the number of arenas after some threads have allocated at the same time.
_PROGRAM = """
import ctypes, re, threading
from service.process.memory_arenas import share_arenas
{call}
library = ctypes.CDLL(None)
library.malloc.restype = ctypes.c_void_p
together = threading.Barrier(8)
def allocate():
    together.wait()
    for _ in range(200):
        library.malloc(1000)
    together.wait()
threads = [threading.Thread(target=allocate) for _ in range(8)]
[thread.start() for thread in threads]
[thread.join() for thread in threads]
library.malloc_stats()
"""


def arenas(call: str) -> int:
    """Count the arenas of a process that makes a call before its threads."""
    program = [sys.executable, "-c", _PROGRAM.format(call=call)]
    said = subprocess.run(program, capture_output=True, text=True, check=True).stderr
    return said.count("Arena ")


@pytest.mark.skipif(
    sys.platform != "linux" or not hasattr(ctypes.CDLL(None), "malloc_stats"),
    reason="not glibc",
)
def test_threads_share_two_arenas() -> None:
    assert arenas("share_arenas()") <= 2
    assert arenas("") > 2  # or the test shows nothing
