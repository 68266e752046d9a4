"""What decoders print on their own about broken pictures, which anybody can send."""

from __future__ import annotations

import contextlib
import ctypes
import warnings

from PIL import _imaging  # pyright: ignore[reportPrivateUsage]


def silence_decoders() -> None:
    """Keep the decoders of this process from writing to its standard error.

    What they have to say of a picture is in the error that it leads to. Only for whoever owns the
    process: it holds for all of it.
    """
    warnings.filterwarnings("ignore", module=r"PIL\.")
    # libtiff prints by itself, where Pillow has no say. Where it is linked in without its names,
    # as on some systems, it goes on to.
    with contextlib.suppress(OSError, AttributeError):
        library = ctypes.CDLL(_imaging.__file__)
        for handler in (library.TIFFSetErrorHandler, library.TIFFSetWarningHandler):
            handler.restype, handler.argtypes = ctypes.c_void_p, [ctypes.c_void_p]
            handler(None)
