"""Boxes drawn in photos, and what is cut out of them: queries whose right answer is known."""

from __future__ import annotations

import io
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from PIL import Image, ImageEnhance

from aladin_index.search.results import Box

_AREA = (0.10, 0.25)
_ASPECT = (3 / 4, 4 / 3)
_JITTER = 0.1
_JPEG_QUALITY = 75
_PARTS = (0.9, 0.5)  # of a photo's area


class Part(NamedTuple):
    """A part of a photo that holds what a box holds.

    Attributes:
        photo: The part.
        box: The box in that part, its edges moved.
    """

    photo: bytes
    box: Box


class Crop(NamedTuple):
    """A photo that changed, and a box in it.

    Attributes:
        item_id: Id of the photo in the index.
        whole: The photo.
        crop: What the box holds of it.
        box: The box.
        parts: Parts of the photo of nine and five tenths of its area.
    """

    item_id: str
    whole: bytes
    crop: bytes
    box: Box
    parts: tuple[Part, ...]


def draw_box(generator: np.random.Generator) -> NDArray[np.float64]:
    """Draw a box of 10 to 25 % of a photo's area."""
    area, aspect = generator.uniform(*_AREA), np.exp(generator.uniform(*np.log(_ASPECT)))
    size = np.minimum(np.sqrt([area * aspect, area / aspect]), 1)
    corner = generator.uniform(0, 1 - size)
    return np.concatenate([corner, corner + size])


def make_crop(
    item_id: str, photo: Image.Image, box: NDArray[np.float64], generator: np.random.Generator
) -> Crop:
    """Change a photo, and cut a box and parts out of it; the box is rounded to pixels.

    Args:
        item_id: Id of the photo.
        photo: The photo.
        box: The box.
        generator: Source of all changes.
    """
    size = np.tile(photo.size, 2)
    pixels = np.rint(box * size)
    for enhance in (ImageEnhance.Brightness, ImageEnhance.Contrast, ImageEnhance.Color):
        photo = enhance(photo).enhance(float(generator.uniform(1 - _JITTER, 1 + _JITTER)))
    parts = tuple(_cut_part(photo, pixels, share, generator) for share in _PARTS)
    crop = _jpeg(_cut(photo, pixels))
    return Crop(item_id, _jpeg(photo), crop, as_box(pixels / size), parts)


def _cut_part(
    photo: Image.Image, pixels: NDArray[np.float64], share: float, generator: np.random.Generator
) -> Part:
    """Cut a share of a photo's area out of it, around a box."""
    size = np.array(photo.size)
    sides = np.maximum(size * np.sqrt(share), pixels[2:] - pixels[:2])
    least, most = np.maximum(pixels[2:] - sides, 0), np.minimum(pixels[:2], size - sides)
    corner = np.rint(generator.uniform(least, np.maximum(least, most)))
    around = np.concatenate([corner, np.minimum(np.rint(corner + sides), size)])
    inside = pixels - np.tile(corner, 2)
    moved = inside + generator.uniform(-_JITTER, _JITTER, 4) * np.tile(inside[2:] - inside[:2], 2)
    part_size = np.tile(around[2:] - around[:2], 2)
    return Part(_jpeg(_cut(photo, around)), as_box(np.clip(moved / part_size, 0, 1)))


def _cut(photo: Image.Image, pixels: NDArray[np.float64]) -> Image.Image:
    x0, y0, x1, y1 = map(int, pixels)
    return photo.crop((x0, y0, x1, y1))


def _jpeg(photo: Image.Image) -> bytes:
    file = io.BytesIO()
    photo.save(file, "JPEG", quality=_JPEG_QUALITY)
    return file.getvalue()


def as_box(edges: NDArray[np.float64]) -> Box:
    x0, y0, x1, y1 = edges.tolist()
    return x0, y0, x1, y1


def iou(one: Box | None, other: Box) -> float:
    """Return the intersection of two boxes divided by their union."""
    if one is None:
        return 0.0
    wide = min(one[2], other[2]) - max(one[0], other[0])
    high = min(one[3], other[3]) - max(one[1], other[1])
    shared = max(wide, 0) * max(high, 0)
    areas = [(box[2] - box[0]) * (box[3] - box[1]) for box in (one, other)]
    return shared / (sum(areas) - shared)
