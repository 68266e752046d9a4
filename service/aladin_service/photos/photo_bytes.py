"""Photos of index items as they are served: original or smaller, without metadata, and cached.

`served_photo` finds the file of an item's photo, and `ThumbnailCache` keeps smaller versions.
"""

from __future__ import annotations

import hashlib
import io
import logging
from pathlib import Path
from typing import NamedTuple

from PIL import ExifTags, Image

from aladin_index.items.tables import StoredItem
from aladin_index.items.uploaded_photos import photo_of
from aladin_network.errors import AladinError, ImageError, OverloadedError
from aladin_network.photos.decoding import FORMATS, ImageLimits, decoded_image
from aladin_network.photos.files import PhotoFile, PhotosRoot
from aladin_network.photos.memory import (
    BoundedReader,
    DecodingMemory,
    MemoryLimitError,
    WithdrawnError,
    check_wanted,
)
from aladin_service.lru_cache import LruCache
from aladin_service.photos.metadata import bare_profile, without_metadata

# Visibly lossless for photos at the sizes of a page of hits.
_SMALL_JPEG_QUALITY = 87
# Of a photo that takes the place of its original.
_FULL_QUALITY = 95

# Of a photo that is written anew, its encoder's buffers and its file, for each pixel.
_WRITTEN_BYTES = 6
# A third of the time of the default, for a file that is a tenth larger.
_PNG_EFFORT = 1

# Media types of what metadata can be cut out of, by the format.
_CUT = {"JPEG": "jpeg", "MPO": "jpeg", "PNG": "png", "WEBP": "webp"}
# How a photo is written anew, by the format it had; a format without an entry, of which no browser
# shows all, becomes a PNG.
_LOSSY = {"JPEG": "JPEG", "MPO": "JPEG", "WEBP": "WEBP"}

# Errors that say nothing of the photo itself, or more than that it is gone.
_PASSED_ON = (MemoryLimitError, OverloadedError, WithdrawnError)


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


def cut_photo(photo: PhotoFile, item_id: str, limits: ImageLimits) -> PhotoBytes | None:
    """Read a photo at its full size, its file without what tells more than the picture.

    Args:
        photo: where its bytes are, as the index knows it.
        item_id: named in the error.
        limits: what the photo may cost.

    Returns:
        The photo; None if it has to be written anew: it is not upright, or of a format out of
        which nothing can be cut.

    Raises:
        PhotoGoneError: it is gone, or no picture any more, or over the limits.
    """
    try:
        data = photo.read(limits.max_bytes)
        # The header alone: a file that has become something else since must not be handed out.
        with Image.open(BoundedReader(data), formats=FORMATS) as picture:
            format = picture.format or ""
            is_upright = _is_upright(picture)
    except Exception as error:  # decoders raise whatever a damaged file makes them raise
        raise PhotoGoneError(item_id) from error
    cut = without_metadata(data, format) if is_upright else None
    return None if cut is None else PhotoBytes(cut, f"image/{_CUT[format]}")


def rewritten_photo(
    photo: PhotoFile, item_id: str, limits: ImageLimits, memory: DecodingMemory
) -> PhotoBytes:
    """Read a photo at its full size and write it anew, upright and without metadata.

    Args:
        photo: where its bytes are, as the index knows it.
        item_id: named in the error.
        limits: what the photo may cost.
        memory: Where the memory to decode and to write it is reserved.

    Raises:
        PhotoGoneError: it is gone, or no picture any more, or over the limits.
        MemoryLimitError: It takes more memory than there is.
        OverloadedError: The memory did not become free in time.
        WithdrawnError: Nobody waits for it any more.
    """
    try:
        data = photo.read(limits.max_bytes)
        with Image.open(BoundedReader(data), formats=FORMATS) as picture:
            format, profile = picture.format or "", picture.info.get("icc_profile")
            room_bytes = _WRITTEN_BYTES * picture.width * picture.height
        with decoded_image(data, memory, item_id, limits, room_bytes=room_bytes) as upright:
            check_wanted()
            written = _LOSSY.get(format, "PNG")
            return _encode(upright, written, _FULL_QUALITY, _rgb_profile(profile))
    except _PASSED_ON:
        raise
    except Exception as error:  # decoders raise whatever a damaged file makes them raise
        raise PhotoGoneError(item_id) from error


def resized_photo(
    photo: PhotoFile, item_id: str, size_px: int, limits: ImageLimits, memory: DecodingMemory
) -> PhotoBytes:
    """Read a photo, upright, as a JPEG that fits into a square.

    Args:
        photo: where its bytes are, as the index knows it.
        item_id: named in the error.
        size_px: of the square's side; a smaller photo keeps its size.
        limits: what the photo may cost.
        memory: Where the memory to decode it is reserved.

    Raises:
        PhotoGoneError: it is gone, damaged or over the limits.
        MemoryLimitError: It takes more memory than there is.
        OverloadedError: The memory did not become free in time.
        WithdrawnError: Nobody waits for it any more.
    """
    # Twice as large as wanted: decoders that can skip pixels then leave nothing to be seen.
    least_px = 2 * size_px
    # Pillow shrinks by way of a picture of up to twice the size.
    room_bytes = 4 * least_px**2
    try:
        data = photo.read(limits.max_bytes)
        with decoded_image(
            data, memory, item_id, limits, at_least_px=least_px, room_bytes=room_bytes
        ) as picture:
            picture.thumbnail((size_px, size_px))
            return _encode(picture, "JPEG", _SMALL_JPEG_QUALITY)
    except _PASSED_ON:
        raise
    except ImageError as error:
        raise PhotoGoneError(item_id) from error


def _is_upright(picture: Image.Image) -> bool:
    try:
        # Not the method of a PNG, which decodes all pixels to find what stands behind them.
        noted = Image.Image.getexif(picture).get(ExifTags.Base.Orientation, 1)
    except Exception:  # a broken note is common in old photos, and does not spoil them
        return True
    return noted not in range(2, 9)


def _rgb_profile(profile: object) -> bytes | None:
    """Return what tells the colours of a photo that was decoded to RGB, if anything does."""
    if not isinstance(profile, bytes) or profile[16:20] != b"RGB ":
        return None
    return bare_profile(profile)


def _encode(
    picture: Image.Image, format: str, quality: int, profile: bytes | None = None
) -> PhotoBytes:
    target = io.BytesIO()
    if format == "PNG":
        picture.save(target, format, compress_level=_PNG_EFFORT, icc_profile=profile)
    else:
        picture.save(target, format, quality=quality, icc_profile=profile)
    return PhotoBytes(target.getvalue(), f"image/{format.lower()}")


_LOG = logging.getLogger(__name__)


def served_photo(index: Path, item: StoredItem, root: PhotosRoot | None) -> PhotoFile | None:
    """Find the bytes of an item's photo, unless they lie where none may be shown from.

    Args:
        index: folder of the index; photos that it keeps itself are always shown.
        item: of the index.
        root: folder outside of which no photo is shown, or None to show photos from anywhere.

    Returns:
        Where the bytes are; None for a text, for a photo that the index has no file of, and for
        one outside of the root, which is logged.
    """
    photo = photo_of(index, item)
    if photo is None or root is None or item.photo is None or not item.photo.path.is_absolute():
        return photo
    if root.holds(photo.path):
        return photo
    _LOG.warning("photo of item %r lies outside of %s and is not shown", item.id, root.folder)
    return None


# What the cache itself needs for a photo, about: its name, and its place in the order.
_OVERHEAD_BYTES = 300


class ThumbnailCache(LruCache[str, PhotoBytes]):
    """Keeps the photos that were asked for last, by their `photo_version`; see `LruCache`."""

    def entry_bytes(self, key: str, entry: PhotoBytes) -> int:
        """Return the memory that a photo takes."""
        del key  # of one length
        return len(entry.data) + _OVERHEAD_BYTES
