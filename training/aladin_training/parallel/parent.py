"""The end of a child process with its parent, however the parent ends."""

from __future__ import annotations

import ctypes
import multiprocessing
import os
import signal
import sys
import threading

_PR_SET_PDEATHSIG = 1  # of Linux's prctl


def end_with_parent() -> None:
    """End this process when the process that started it ends, or if it has ended already.

    To be called first in the function of a `multiprocessing.Process`. On Linux the kernel kills
    the process, even if it is stuck in native code. That misses a parent that ended before this
    call, while modules were imported, and the service behind a fork server. A thread therefore
    waits for the end of the pipe whose other end only the parent has.
    """
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if multiprocessing.parent_process() is not None:
        threading.Thread(target=_end_after_parent, name="parent", daemon=True).start()


def _end_after_parent() -> None:
    parent = multiprocessing.parent_process()
    assert parent is not None
    parent.join()
    os._exit(1)  # nobody is left to whom anything could be reported
