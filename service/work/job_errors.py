"""What is kept of an error that ends the work for one client."""

from __future__ import annotations

from aladin.errors import AladinError


def without_frames(error: Exception) -> Exception:
    """Have a foreseen error hold nothing but its message; another one keeps what explains it.

    A traceback refers to frames that refer to the error, and to a photo's bytes, to its pixels or
    to the index: a circle, in which all of them would stay until the next collection of such
    circles, which may be hundreds of refused photos later.
    """
    if isinstance(error, AladinError):
        error.__cause__ = error.__context__ = None
        return error.with_traceback(None)
    return error
