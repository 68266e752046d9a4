"""Memory of large photos goes back to the system when they are gone."""

from __future__ import annotations

import contextlib
import ctypes

# glibc's names of what can be set.
_TRIM_THRESHOLD, _MMAP_THRESHOLD = -1, -3

# Pillow keeps pixels in blocks of almost 16 MB; what a query needs in the network is smaller.
_LARGE_BYTES = 8 * 2**20


def return_large_memory() -> None:
    """Have the C library keep no large piece of memory that is free.

    By itself it learns from the first large photo to keep all such pieces for later ones, in as
    many heaps as there are threads: some large photos, and the process is four times its size for
    good. Only for whoever owns the process, before it starts threads; elsewhere than with glibc
    nothing is changed.
    """
    with contextlib.suppress(OSError, AttributeError, TypeError):
        set_option = ctypes.CDLL(None).mallopt
        set_option(_MMAP_THRESHOLD, _LARGE_BYTES)
        # As glibc relates the two while it learns: given one, it forgets the other.
        set_option(_TRIM_THRESHOLD, 2 * _LARGE_BYTES)
