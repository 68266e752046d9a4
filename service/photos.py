"""The bytes of an index item's photo, as it is or made smaller."""

from __future__ import annotations

import io
from pathlib import Path
from typing import NamedTuple

from PIL import Image

from aladin.errors import AladinError, ImageError
from aladin.images import FORMATS, ImageLimits, read_image

# Visibly lossless for photos at the sizes of a page of hits.
_JPEG_QUALITY = 87


class PhotoGoneError(AladinError):
    """The photo of an item cannot be read any more; says nothing of where it was."""

    def __init__(self, item_id: str) -> None:
        super().__init__(f"the photo of item {item_id!r} can no longer be read")


class PhotoBytes(NamedTuple):
    """An encoded picture."""

    data: bytes
    media_type: str


def original_photo(path: Path, item_id: str) -> PhotoBytes:
    """Read a photo's file as it is.

    Args:
        path: of the file, as the index knows it.
        item_id: named in the error.

    Raises:
        PhotoGoneError: the file is gone, or is no picture any more.
    """
    try:
        data = path.read_bytes()
        # The header alone: a file that has become something else since must not be handed out.
        with Image.open(io.BytesIO(data), formats=FORMATS) as picture:
            return PhotoBytes(data, picture.get_format_mimetype() or "application/octet-stream")
    except (OSError, ValueError, Image.DecompressionBombError) as error:
        raise PhotoGoneError(item_id) from error


def resized_photo(path: Path, item_id: str, size_px: int, limits: ImageLimits) -> PhotoBytes:
    """Read a photo, upright and without its metadata, as a JPEG that fits into a square.

    Args:
        path: of the file, as the index knows it.
        item_id: named in the error.
        size_px: of the square's side; a smaller photo keeps its size.
        limits: what the file may cost.

    Raises:
        PhotoGoneError: the file is gone, damaged or over the limits.
    """
    try:
        photo = read_image(path, limits)
    except ImageError as error:
        raise PhotoGoneError(item_id) from error
    photo.thumbnail((size_px, size_px))
    target = io.BytesIO()
    # A fresh picture: thumbnail() keeps the EXIF block, where and when the photo was taken.
    Image.frombytes("RGB", photo.size, photo.tobytes()).save(target, "JPEG", quality=_JPEG_QUALITY)
    return PhotoBytes(target.getvalue(), "image/jpeg")
