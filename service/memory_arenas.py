"""Keeps the C library from holding memory for each thread on its own."""

from __future__ import annotations

import ctypes
import sys

_M_ARENA_MAX = -8  # of glibc's malloc.h
_ARENAS = 2


def share_arenas() -> None:
    """Have all threads allocate from a few arenas; call it before there are threads.

    glibc gives each thread an arena, and an arena keeps the most that its thread ever took: with a
    dozen threads that encode, decode and read now and then, memory grows for an hour and comes to
    half as much again. Networks take their memory in large pieces, seldom: two arenas cost no time.

    Does nothing where the C library is another one.
    """
    if sys.platform == "linux":
        mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
        if mallopt is not None:
            mallopt(_M_ARENA_MAX, _ARENAS)
