"""The bytes of an index item's photo, as it is or made smaller."""

from __future__ import annotations

import io
from typing import NamedTuple

from PIL import Image

from aladin.errors import AladinError, ImageError
from aladin.images import FORMATS, ImageLimits, read_image
from aladin.photo_file import PhotoFile

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


def original_photo(photo: PhotoFile, item_id: str) -> PhotoBytes:
    """Read the bytes of a photo as they are.

    Args:
        photo: where they are, as the index knows it.
        item_id: named in the error.

    Raises:
        PhotoGoneError: they are gone, or no picture any more.
    """
    try:
        data = photo.read()
        # The header alone: a file that has become something else since must not be handed out.
        with Image.open(io.BytesIO(data), formats=FORMATS) as picture:
            return PhotoBytes(data, picture.get_format_mimetype() or "application/octet-stream")
    except (ImageError, OSError, ValueError, Image.DecompressionBombError) as error:
        raise PhotoGoneError(item_id) from error


def resized_photo(photo: PhotoFile, item_id: str, size_px: int, limits: ImageLimits) -> PhotoBytes:
    """Read a photo, upright and without its metadata, as a JPEG that fits into a square.

    Args:
        photo: where its bytes are, as the index knows it.
        item_id: named in the error.
        size_px: of the square's side; a smaller photo keeps its size.
        limits: what the photo may cost.

    Raises:
        PhotoGoneError: it is gone, damaged or over the limits.
    """
    try:
        picture = read_image(photo, limits)
    except ImageError as error:
        raise PhotoGoneError(item_id) from error
    picture.thumbnail((size_px, size_px))
    target = io.BytesIO()
    # A fresh picture: thumbnail() keeps the EXIF block, where and when the photo was taken.
    plain = Image.frombytes("RGB", picture.size, picture.tobytes())
    plain.save(target, "JPEG", quality=_JPEG_QUALITY)
    return PhotoBytes(target.getvalue(), "image/jpeg")
