"""Keeps the C library and torch from holding memory for each thread and for each shape."""

from __future__ import annotations

import ctypes
import os
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


def keep_few_kernels() -> None:
    """Have torch remember few of its kernels for shapes; call it before torch is imported.

    oneDNN makes one for every shape of a product in bfloat16, and queries come in all lengths and
    batches: with the usual room for a thousand, in two layers, 160 shapes held 700 MB more.
    Making them anew costs no time that could be measured. What the environment says stands.
    """
    os.environ.setdefault("LRU_CACHE_CAPACITY", "8")
    os.environ.setdefault("ONEDNN_PRIMITIVE_CACHE_CAPACITY", "16")
