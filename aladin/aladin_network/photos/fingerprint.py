"""Fingerprints of pictures, by which copies of a photo are known again.

A fingerprint is what C. Zauner, "Implementation and Benchmarking of Perceptual Image Hash
Functions" (2010), section 3.2, calls a DCT hash, with 255 bits in place of 64: the signs of the 255
lowest frequencies of the picture's lightness, in 32 x 32 px. It depends on no model, and hardly
changes where a photo is resized, compressed anew, brightened or cropped a little.

Two photos are near-copies within `COPY_BITS`, and alike within `ALIKE_BITS`. Among 24 million pairs
of different photos of Flickr8k none is nearer than 78, and one in 6,900 is within 96; pages of
printed text are nearer to each other (benchmarks/RESULTS.md).
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray
from PIL import Image

# Different bits of two fingerprints, at most: of a copy, and of what looks alike, which says
# something only of photos that also have a time and a camera in common.
COPY_BITS, ALIKE_BITS = 40, 96
# The same of the lowest frequencies, which are compared first and change least.
COPY_LOW_BITS = 12
WORDS = 4

_SIDE_PX, _FREQUENCIES, _LOW = 32, 16, 8
# Standard deviation of the lightness (0 to 255) below which there is nothing but noise to tell.
_LEAST_CONTRAST = 2.0


def _cosines() -> NDArray[np.float32]:
    frequencies, places = np.mgrid[:_FREQUENCIES, :_SIDE_PX]
    cosines = np.cos(np.pi * frequencies * (2 * places + 1) / (2 * _SIDE_PX))
    return cosines.astype(np.float32)


def _low_first() -> NDArray[np.int64]:
    """Return the frequencies with the lowest 8 x 8 first; the mean lightness takes no part."""
    rows, columns = np.mgrid[:_FREQUENCIES, :_FREQUENCIES]
    is_high = np.maximum(rows, columns).ravel() >= _LOW
    return np.argsort(is_high, kind="stable")


_COSINES, _ORDER = _cosines(), _low_first()


def fingerprint(picture: Image.Image) -> str | None:
    """Return the fingerprint of an upright photo, 64 hexadecimal digits; None of an empty one."""
    small = picture.convert("L").resize((_SIDE_PX, _SIDE_PX), Image.Resampling.BOX)
    lightness = np.asarray(small, dtype=np.float32)
    if lightness.std() < _LEAST_CONTRAST:
        return None
    signs = (_COSINES @ lightness @ _COSINES.T).ravel()[_ORDER] > 0
    signs[0] = False  # of the mean
    return np.packbits(signs).tobytes().hex()


def unpack(fingerprints: Sequence[str]) -> NDArray[np.uint64]:
    """Return fingerprints as (photos, 4) words; the first has the lowest frequencies."""
    joined = bytes.fromhex("".join(fingerprints))
    return np.frombuffer(joined, dtype=np.uint64).reshape(-1, WORDS)


def different_bits(a: NDArray[np.uint64], b: NDArray[np.uint64]) -> NDArray[np.int64]:
    """Return the number of different bits of fingerprints (..., 4), which are broadcast."""
    return np.bitwise_count(a ^ b).sum(axis=-1, dtype=np.int64)
