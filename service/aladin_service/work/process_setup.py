"""Process-wide setup: memory allocators, output of image decoders, and limits of open files.

The settings of the C library, torch and Python's garbage collector, and the capture of what
decoders print about broken pictures, apply to the whole process; only entry points call these
functions.
"""

from __future__ import annotations

import contextlib
import ctypes
import gc
import logging
import os
import sys
import threading
import time
import warnings
from collections.abc import Callable

from PIL import _imaging  # pyright: ignore[reportPrivateUsage]

_LOG = logging.getLogger(__name__)

# Networks allocate memory rarely and in large pieces: two arenas cost no time.
_ARENAS = 2
# Between the largest piece that MobileNetV2 allocates for two photos, 9.6 MB, and Pillow's blocks
# of almost 16 MB. At 8 MiB, encoding photos in pairs took half as much time again, because the same
# pages were obtained from the system and cleared each time.
_LARGE_BYTES = 12 * 2**20
# Everything that a batch of photos needs in the network fits into it and is reused for the next
# batch.
_KEPT_BYTES = 64 * 2**20
# Pages that were released have to be obtained and cleared again: 50 MB of them take some 20 ms.
_TRIM_S = 10.0

# Files of the index, pipes to workers, connections to a vector database, photos being read.
_OTHER_FILES = 256


def silence_decoders() -> None:
    """Keep the decoders of this process from writing to its standard error.

    What they have to say of a picture is in the error that it leads to. Only for whoever owns the
    process: it holds for all of it.
    """
    warnings.filterwarnings("ignore", module=r"PIL\.")
    # libtiff prints directly, beyond Pillow's control. If it is linked statically without exported
    # symbols, as on some systems, it continues to print.
    with contextlib.suppress(OSError, AttributeError):
        library = ctypes.CDLL(_imaging.__file__)
        for handler in (library.TIFFSetErrorHandler, library.TIFFSetWarningHandler):
            handler.restype, handler.argtypes = ctypes.c_void_p, [ctypes.c_void_p]
            handler(None)


# Parameters of glibc's mallopt, from its malloc.h.
_TRIM_THRESHOLD, _MMAP_THRESHOLD, _ARENA_MAX = -1, -3, -8


def limit_free_memory() -> None:
    """Make the C library keep little free memory; call it before there are threads.

    By itself it learns from the first large photo to keep all such pieces for later ones, and it
    does so for each thread apart: with a dozen threads that encode, decode and read now and then,
    a process comes to several times its size for good. Here large pieces go back at once, and all
    threads share what is kept. Does nothing where the C library is another one.
    """
    with contextlib.suppress(OSError, AttributeError, TypeError):
        set_option = ctypes.CDLL(None).mallopt
        set_option(_ARENA_MAX, _ARENAS)
        set_option(_MMAP_THRESHOLD, _LARGE_BYTES)
        set_option(_TRIM_THRESHOLD, _KEPT_BYTES)


def trim_memory_regularly() -> None:
    """Release free memory inside the heaps now and every ten seconds, on a separate thread.

    The C library returns only the end of a heap; one long-lived block keeps all memory before it.
    After uploads, 100 MB stayed unreturned. Does nothing with another C library.
    """
    with contextlib.suppress(OSError, AttributeError, TypeError):
        trim = ctypes.CDLL(None).malloc_trim
        threading.Thread(target=_trim, args=(trim,), name="trim", daemon=True).start()


def _trim(trim: Callable[[int], int]) -> None:
    while True:
        trim(0)
        time.sleep(_TRIM_S)


def limit_kernel_cache() -> None:
    """Make torch cache few of its kernels for shapes; call it before torch is imported.

    oneDNN makes one for every shape of a product in bfloat16, and queries come in all lengths and
    batches. At the default capacity of 1,000, in each of two caches, batches of up to 16 held
    630 MB more than with almost none. This capacity uses 70 MB and keeps the kernels of lone
    queries of all usual lengths; rebuilding those took a third of their time. Values set in the
    environment are kept.
    """
    os.environ.setdefault("LRU_CACHE_CAPACITY", "128")
    os.environ.setdefault("ONEDNN_PRIMITIVE_CACHE_CAPACITY", "256")


def freeze_loaded_objects() -> None:
    """Exclude existing objects from garbage collection; call it before serving.

    The modules of a service are 400,000 objects. To look through them stops all threads for a
    quarter of a second, now and then while it serves and several times as it ends. What was loaded
    still goes when nothing refers to it.
    """
    gc.collect()
    gc.freeze()


def allow_open_files(connections: int) -> None:
    """Raise this process's limit of open files if it is too low for its connections.

    At the limit the system accepts no connection, not even that of a probe. Does nothing on
    Windows, which has no such limit.
    """
    if sys.platform == "win32":
        return
    import resource

    needed = connections + _OTHER_FILES
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft == resource.RLIM_INFINITY or soft >= needed:
        return
    raised = needed if hard == resource.RLIM_INFINITY else min(needed, hard)
    resource.setrlimit(resource.RLIMIT_NOFILE, (raised, hard))
    if raised < needed:
        _LOG.warning(
            "%d connections need %d open files, but the system allows %d: raise its limit "
            "(ulimit -n) or lower ALADIN_MAX_CONNECTIONS",
            connections,
            needed,
            hard,
        )
