"""Where the regions of a photo are, in eight bytes a region."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

# Steps of a side: of a photo of 16,000 px each is a quarter of one.
_STEPS = 65535
_DTYPE = np.dtype("<u2")


def pack_boxes(boxes: NDArray[np.float32]) -> bytes:
    """Return the stored form of boxes.

    Args:
        boxes: (regions, 4), x0, y0, x1, y1 in fractions of the photo.
    """
    return np.rint(boxes.astype(np.float64) * _STEPS).astype(_DTYPE).tobytes()


def unpack_boxes(stored: bytes) -> NDArray[np.float32]:
    """Return the boxes of a stored form, (regions, 4) in fractions of the photo."""
    steps = np.frombuffer(stored, dtype=_DTYPE).reshape(-1, 4)
    return (steps / _STEPS).astype(np.float32)
