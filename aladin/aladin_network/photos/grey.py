"""Grey with more than 8 bits, of integers or floating-point numbers, as 8-bit RGB."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from typing import Any, NamedTuple, cast

import numpy as np
import numpy.typing as npt
from PIL import Image, TiffImagePlugin

_WHITE_IS_ZERO = 0  # as TIFF's photometric interpretation
_PHOTOMETRIC, _BITS_PER_SAMPLE, _SMALLEST_VALUE, _LARGEST_VALUE = 262, 258, 340, 341

# Number of pixels whose colours are converted at a time, as each of several steps needs memory.
_STRIP_PIXELS = 2**18


class GreyRange(NamedTuple):
    """What a file tells about its grey values.

    Attributes:
        black: Value of black, or None if it is not told.
        white: Value of white, or None if it is not told.
    """

    black: float | None = None
    white: float | None = None
    is_inverted: bool = False


def stated_range(picture: Image.Image) -> GreyRange | None:
    """Return what the file tells about grey with more than 8 bits.

    The values of PNG and PGM extend to 16 bits by definition. Those of a TIFF often have fewer bits
    than the space they are stored in.
    """
    if not isinstance(picture, TiffImagePlugin.TiffImageFile):
        return GreyRange(0, 2**16 - 1) if picture.mode.startswith("I") else None
    tags = picture.tag_v2
    is_inverted = tags.get(_PHOTOMETRIC) == _WHITE_IS_ZERO
    black, white = (_first_number(tags.get(tag)) for tag in (_SMALLEST_VALUE, _LARGEST_VALUE))
    bits = _first_number(tags.get(_BITS_PER_SAMPLE))
    if white is None and bits is not None and 8 < bits < 16:
        black, white = 0.0, 2**bits - 1
    return GreyRange(black, white, is_inverted)


def _first_number(value: object) -> float | None:
    first = cast(tuple[object, ...], value)[0] if isinstance(value, tuple) and value else value
    with suppress(TypeError, ValueError, ZeroDivisionError):
        return float(cast(Any, first))
    return None


def grey_to_rgb(picture: Image.Image, told: GreyRange) -> Image.Image:
    """Convert grey with more than 8 bits, or floating-point grey, to 8 bits.

    White is what the file tells, unless there are larger values or none above 8 bits; else the
    largest integer of as many bits as the picture uses, or the largest floating-point number. Black
    is what the file tells, or 0, or the smallest negative number.
    """
    low, high = np.inf, -np.inf
    for box in strips(picture):
        values = _strip_values(picture, box)
        values = values[np.isfinite(values)]
        low, high = min(low, values.min(initial=np.inf)), max(high, values.max(initial=-np.inf))
    black, white = told.black, told.white
    if black is None or not black <= low:
        black = min(low, 0.0)
    high = max(high, black)  # if no number is finite
    is_whole = picture.mode.startswith("I") and low >= 0
    if is_whole and (white is None or not 255 < high <= white):
        white = 2.0 ** max(8, int(high).bit_length()) - 1
    elif white is None or not high <= white < np.inf:
        white = high
    scale = 255 / (white - black) if white > black else 0.0
    photo = Image.new("RGB", picture.size)
    for box in strips(picture):
        values = np.nan_to_num(_strip_values(picture, box), nan=black)
        values = np.clip(values, black, white)
        values -= black
        values *= scale
        if told.is_inverted:
            np.subtract(255, values, out=values)
        photo.paste(Image.fromarray(values.astype(np.uint8)).convert("RGB"), box)
    return photo


def _strip_values(picture: Image.Image, box: tuple[int, int, int, int]) -> npt.NDArray[np.float64]:
    return np.array(picture.crop(box), dtype=np.float64)


def strips(picture: Image.Image) -> Iterator[tuple[int, int, int, int]]:
    """Split a picture into boxes of its full width, from the top."""
    rows = max(1, _STRIP_PIXELS // max(1, picture.width))
    for top in range(0, picture.height, rows):
        yield 0, top, picture.width, min(top + rows, picture.height)
