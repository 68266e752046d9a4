"""Photos of index items as they are served: original or smaller, without metadata, and cached.

`served_photo` finds the file of an item's photo, and `ThumbnailCache` keeps smaller versions.
"""

from __future__ import annotations

import hashlib
import io
import logging
import mimetypes
import re
from dataclasses import replace
from pathlib import Path, PurePath
from typing import NamedTuple

from PIL import Image

from aladin_index.items.tables import StoredItem
from aladin_index.items.uploaded_photos import photo_of
from aladin_network.errors import AladinError, ImageError, OverloadedError
from aladin_network.photos.decoding import (
    MOST_PIXELS,
    MOST_SIDE_PX,
    ImageLimits,
    OpenedPhoto,
    decoded_image,
    opened_image,
)
from aladin_network.photos.files import PhotoFile, PhotosRoot, printable
from aladin_network.photos.memory import (
    DecodingMemory,
    MemoryLimitError,
    WithdrawnError,
    check_wanted,
)
from aladin_service.photos.metadata import bare_profile, without_metadata
from aladin_service.search.lru_cache import LruCache

# Visibly lossless for photos at the sizes used on a page of hits.
_SMALL_JPEG_QUALITY = 87
# Quality of a photo that replaces its original.
_FULL_QUALITY = 95

# Memory per pixel for re-encoding a photo: the encoder's buffers and its file.
_WRITTEN_BYTES = 6
# A third of the default's time, for a file that is a tenth larger.
_PNG_EFFORT = 1

# Media types of the formats from which metadata can be removed without re-encoding.
_CUT = {"JPEG": "jpeg", "MPO": "jpeg", "PNG": "png", "WEBP": "webp"}
# How a photo is re-encoded, by its original format; formats without an entry, which not all
# browsers can show, become PNG.
_LOSSY = {"JPEG": "JPEG", "MPO": "JPEG", "HEIF": "JPEG", "AVIF": "JPEG", "WEBP": "WEBP"}

# Errors whose text says nothing about the photo itself, or more than that it is missing.
_PASSED_ON = (MemoryLimitError, OverloadedError, WithdrawnError)

_LOG = logging.getLogger(__name__)

# Approximate overhead of the cache for each photo: its key and its entry in the order.
_OVERHEAD_BYTES = 300


class PhotoGoneError(AladinError):
    """The photo of an item cannot be read any more; the message does not reveal its location."""

    def __init__(self, item_id: str) -> None:
        super().__init__(f"the photo of item {item_id!r} can no longer be read")


class PhotoBytes(NamedTuple):
    """An encoded picture."""

    data: bytes
    media_type: str


def photo_version(photo: PhotoFile, item_id: str, size_px: int | None) -> str:
    """Return an identifier of a photo's current appearance, which changes with its file."""
    try:
        state = photo.path.stat()
    except (OSError, ValueError) as error:  # a name with a zero byte is none
        raise PhotoGoneError(item_id) from error
    file = (state.st_dev, state.st_ino, state.st_size, state.st_mtime_ns, state.st_ctime_ns)
    version = (str(photo.path), photo.offset, photo.length, *file, size_px)
    return hashlib.sha256(repr(version).encode("utf-8", "surrogateescape")).hexdigest()


def cut_photo(photo: PhotoFile, item_id: str, limits: ImageLimits) -> PhotoBytes | None:
    """Read the file of a photo at full size, with its metadata removed."""
    _, opened, is_upright = _opened(photo, item_id, limits)
    format = opened.picture.format or ""
    cut = without_metadata(opened.data, format) if is_upright else None
    return None if cut is None else PhotoBytes(cut, f"image/{_CUT[format]}")


def whole_photo(photo: PhotoFile, item_id: str, limits: ImageLimits) -> PhotoBytes:
    """Read the file of a photo as it is."""
    data, opened, _ = _opened(photo, item_id, limits)
    return PhotoBytes(data, f"image/{(opened.picture.format or '').lower()}")


def _opened(photo: PhotoFile, item_id: str, limits: ImageLimits) -> tuple[bytes, OpenedPhoto, bool]:
    """Return the bytes of a photo's file, what their header tells, and whether it is upright."""
    try:
        data = photo.read(limits.max_bytes)
        # Checks only the header: a file that has been replaced by something else must not be
        # delivered. Nothing is decoded, so the pixels are not limited.
        header_limits = replace(limits, max_pixels=MOST_PIXELS, max_side_px=MOST_SIDE_PX)
        with opened_image(data, item_id, header_limits) as opened:
            return data, opened, opened.is_upright
    except Exception as error:  # decoders raise whatever a damaged file makes them raise
        raise PhotoGoneError(item_id) from error


def file_name(place: str, media_type: str, *, is_whole: bool) -> str:
    """Return the name of a photo's file, without folders.

    Its suffix is another one if the photo was re-encoded in another format; a name without any gets
    one.
    """
    name = printable(re.split(r"[/\\]", place.rstrip("/\\"))[-1])
    name = "photo" if name in ("", ".", "..") else name
    suffix = PurePath(name).suffix
    is_right = mimetypes.guess_type(name, strict=False)[0] == media_type
    if is_right or (suffix and is_whole):
        return name
    usual = mimetypes.guess_extension(media_type, strict=False)
    return name.removesuffix(suffix) + (usual or f".{media_type.rpartition('/')[2]}")


def rewritten_photo(
    photo: PhotoFile, item_id: str, limits: ImageLimits, memory: DecodingMemory
) -> PhotoBytes:
    """Re-encode a photo at full size, upright and without metadata."""
    try:
        data = photo.read(limits.max_bytes)
        with opened_image(data, item_id, limits) as opened:
            picture = opened.picture
            format, profile = picture.format or "", picture.info.get("icc_profile")
            room_bytes = _WRITTEN_BYTES * picture.width * picture.height
        with decoded_image(data, memory, item_id, limits, room_bytes=room_bytes) as upright:
            check_wanted()
            written = _LOSSY.get(format, "PNG")
            return _encode(upright.picture, written, _FULL_QUALITY, _rgb_profile(profile))
    except _PASSED_ON:
        raise
    except Exception as error:  # decoders raise whatever a damaged file makes them raise
        raise PhotoGoneError(item_id) from error


def resized_photo(
    photo: PhotoFile, item_id: str, size_px: int, limits: ImageLimits, memory: DecodingMemory
) -> PhotoBytes:
    """Return a photo, upright, as a JPEG that fits into a square.

    Args:
        photo: Location of the photo's bytes, as stored in the index.
        item_id: ID of the item, named in the error.
        size_px: Side of the square in pixels; a smaller photo keeps its size.
        limits: Limits for the photo.
        memory: Where the memory to decode it is reserved.

    Raises:
        PhotoGoneError: If the photo is missing, damaged or exceeds the limits.
        MemoryLimitError: If the photo requires more memory than there is.
        OverloadedError: If the memory did not become free in time.
        WithdrawnError: If nobody waits for the photo any more.
    """
    # Twice as large as requested, so that decoders which skip pixels leave no visible artefacts.
    least_px = 2 * size_px
    # Pillow resizes through an intermediate picture of up to twice the size.
    room_bytes = 4 * least_px**2
    try:
        data = photo.read(limits.max_bytes)
        with decoded_image(
            data, memory, item_id, limits, at_least_px=least_px, room_bytes=room_bytes
        ) as decoded:
            decoded.picture.thumbnail((size_px, size_px))
            return _encode(decoded.picture, "JPEG", _SMALL_JPEG_QUALITY)
    except _PASSED_ON:
        raise
    except ImageError as error:
        raise PhotoGoneError(item_id) from error


def _rgb_profile(profile: object) -> bytes | None:
    """Return the colour profile of a photo that was decoded to RGB, or None."""
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


def served_photo(index: Path, item: StoredItem, root: PhotosRoot | None) -> PhotoFile | None:
    """Locate the bytes of an item's photo, unless they are outside of the permitted folders.

    Args:
        index: Folder of the index; photos stored in the index itself are always shown.
        item: Item of the index.
        root: Folders outside of which no photo is shown, or None to show photos from anywhere.

    Returns:
        Where the bytes are; None for a text, for a photo that the index has no file of, and for
        one outside of the root, which is logged.
    """
    photo = photo_of(index, item)
    if photo is None or root is None or item.photo is None or not item.photo.path.is_absolute():
        return photo
    if root.holds(photo.path):
        return photo
    places = " and ".join(map(str, root.folders))
    _LOG.warning("photo of item %r is outside %s and is not served", item.id, places)
    return None


class ThumbnailCache(LruCache[str, PhotoBytes]):
    """Keeps the most recently requested photos, by their `photo_version`; see `LruCache`."""

    def entry_bytes(self, key: str, entry: PhotoBytes) -> int:
        """Return the memory that a photo takes."""
        del key  # of one length
        return len(entry.data) + _OVERHEAD_BYTES
