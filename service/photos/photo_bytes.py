"""The bytes of an index item's photo, without what else its file tells; as it is or smaller."""

from __future__ import annotations

import hashlib
import io
from typing import NamedTuple

from PIL import Image

from aladin.errors import AladinError, ImageError
from aladin.images import FORMATS, ImageLimits, decode_image
from aladin.photo_file import PhotoFile
from service.photos.photo_metadata import is_bare

# Visibly lossless for photos at the sizes of a page of hits.
_SMALL_JPEG_QUALITY = 87
# Of a photo that takes the place of its original.
_FULL_QUALITY = 95

# How a photo is written anew, by the format it had; a format without an entry, of which no browser
# shows all, becomes a PNG.
_LOSSY = {"JPEG": "JPEG", "MPO": "JPEG", "WEBP": "WEBP"}


class PhotoGoneError(AladinError):
    """The photo of an item cannot be read any more; says nothing of where it was."""

    def __init__(self, item_id: str) -> None:
        super().__init__(f"the photo of item {item_id!r} can no longer be read")


class PhotoBytes(NamedTuple):
    """An encoded picture."""

    data: bytes
    media_type: str


def photo_version(photo: PhotoFile, item_id: str, size_px: int | None) -> str:
    """Name what a photo looks like now: another name as soon as its file is another.

    Args:
        photo: where its bytes are, as the index knows it.
        item_id: named in the error.
        size_px: as it is asked for.

    Returns:
        64 hexadecimal digits, that tell nothing.

    Raises:
        PhotoGoneError: there is no file.
    """
    try:
        state = photo.path.stat()
    except (OSError, ValueError) as error:  # a name with a zero byte is none
        raise PhotoGoneError(item_id) from error
    file = (state.st_dev, state.st_ino, state.st_size, state.st_mtime_ns, state.st_ctime_ns)
    version = (str(photo.path), photo.offset, photo.length, *file, size_px)
    return hashlib.sha256(repr(version).encode("utf-8", "surrogateescape")).hexdigest()


def original_photo(photo: PhotoFile, item_id: str, limits: ImageLimits) -> PhotoBytes:
    """Read a photo at its full size: its file where that holds nothing else, else a new one.

    Args:
        photo: where its bytes are, as the index knows it.
        item_id: named in the error.
        limits: what the photo may cost.

    Raises:
        PhotoGoneError: it is gone, or no picture any more, or over the limits.
    """
    try:
        data = photo.read(limits.max_bytes)
        # The header alone: a file that has become something else since must not be handed out.
        with Image.open(io.BytesIO(data), formats=FORMATS) as picture:
            format = picture.format or ""
            media_type = picture.get_format_mimetype()
        if media_type is not None and is_bare(data, format):
            return PhotoBytes(data, media_type)
        upright = decode_image(data, item_id, limits)
    except Exception as error:  # decoders raise whatever a damaged file makes them raise
        raise PhotoGoneError(item_id) from error
    return _encode(upright, _LOSSY.get(format, "PNG"), _FULL_QUALITY)


def resized_photo(photo: PhotoFile, item_id: str, size_px: int, limits: ImageLimits) -> PhotoBytes:
    """Read a photo, upright, as a JPEG that fits into a square.

    Args:
        photo: where its bytes are, as the index knows it.
        item_id: named in the error.
        size_px: of the square's side; a smaller photo keeps its size.
        limits: what the photo may cost.

    Raises:
        PhotoGoneError: it is gone, damaged or over the limits.
    """
    try:
        data = photo.read(limits.max_bytes)
        # Twice as large as wanted: decoders that can skip pixels then leave nothing to be seen.
        picture = decode_image(data, item_id, limits, at_least_px=2 * size_px)
    except ImageError as error:
        raise PhotoGoneError(item_id) from error
    picture.thumbnail((size_px, size_px))
    return _encode(picture, "JPEG", _SMALL_JPEG_QUALITY)


def _encode(picture: Image.Image, format: str, quality: int) -> PhotoBytes:
    target = io.BytesIO()
    if format == "PNG":
        picture.save(target, format)
    else:
        picture.save(target, format, quality=quality)
    return PhotoBytes(target.getvalue(), f"image/{format.lower()}")
