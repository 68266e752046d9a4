"""Numbers out of the cells of a table of regions, each fault said with its name."""

from __future__ import annotations

import base64
import binascii

import numpy as np

from training.data.fields import Place
from training.data.regions.store import FloatArray

_FLOAT_BYTES = 4


def decode_floats(text: str | bytes, rows: int, name: str, place: Place) -> FloatArray:
    """Decode base64 of little-endian float32, row by row.

    Args:
        text: base64.
        rows: that it holds, at least one.
        name: of the cell, for errors.
        place: of the cell, for errors.

    Returns:
        (rows, numbers), a copy.

    Raises:
        DataError: not base64, or its length is not that of so many equal rows.
    """
    try:
        raw = base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError) as error:
        raise place.error(f"{name}: expected base64 ({error})") from None
    if not raw or len(raw) % (rows * _FLOAT_BYTES):
        expected = f"float32 of {rows} boxes, a multiple of {rows * _FLOAT_BYTES} bytes"
        raise place.error(f"{name}: expected {expected}, found {len(raw)} bytes")
    return np.frombuffer(raw, dtype="<f4").reshape(rows, -1).astype(np.float32)


def parse_count(value: object, name: str, place: Place) -> int:
    """Return a whole number of at least one, from a cell or from JSON.

    Raises:
        DataError: it is something else.
    """
    if isinstance(value, bytes) and value.strip().isdigit():
        value = int(value)
    if not isinstance(value, int) or isinstance(value, bool) or value < 1:
        shown = value[:20] if isinstance(value, bytes | str) else value
        raise place.error(f"{name}: expected a whole number of at least 1, found {shown!r}")
    return value
