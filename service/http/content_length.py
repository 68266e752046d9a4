"""How long a request says that its body is."""

from __future__ import annotations

from starlette.types import Scope

# What a number of more digits comes to: of thousands of them `int` would make an error.
ENDLESS_BYTES = 10**18
_DIGITS = 18


def declared_length(scope: Scope) -> int | None:
    """Read the header Content-Length.

    Args:
        scope: of an HTTP request.

    Returns:
        Bytes, at most `ENDLESS_BYTES`; None where it is not told, or is no number.
    """
    text: bytes = dict(scope["headers"]).get(b"content-length", b"")
    if not text.isdigit():
        return None
    return int(text) if len(text) <= _DIGITS else ENDLESS_BYTES
