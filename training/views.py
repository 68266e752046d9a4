"""The views of a photo that training draws from: itself, its mirror image, random crops."""

from __future__ import annotations

import random

from PIL import Image, ImageOps

# A crop keeps this share of each side: enough that the captions stay true.
_CROP_SIDE = (0.65, 0.95)

PLAIN = ""


def view_names(mirror: bool, crops: int) -> list[str]:
    """Return the names of a photo's views; the first is the photo itself.

    Args:
        mirror: offer the mirror image.
        crops: number of random crops offered, half of them mirrored.
    """
    return [PLAIN, *(["mirrored"] if mirror else []), *(f"crop-{n}" for n in range(1, crops + 1))]


def apply_view(photo: Image.Image, view: str, photo_digest: str) -> Image.Image:
    """Return one view of a photo.

    Args:
        photo: decoded.
        view: of `view_names`.
        photo_digest: of the photo's content; with the view's name it determines the crop.
    """
    if view == PLAIN:
        return photo
    if view == "mirrored":
        return ImageOps.mirror(photo)
    generator = random.Random(f"{view}:{photo_digest}")
    side = generator.uniform(*_CROP_SIDE)
    left, top = (generator.uniform(0, 1 - side) for _ in range(2))
    box = (
        left * photo.width,
        top * photo.height,
        (left + side) * photo.width,
        (top + side) * photo.height,
    )
    crop = photo.resize(photo.size, Image.Resampling.BICUBIC, box=box)
    return ImageOps.mirror(crop) if generator.random() < 0.5 else crop
