"""What a picture would cost to decode, found in its header; what costs too much is refused.

Sizes alone do not bound the work: a few bytes can ask for a thousand passes over all pixels, for a
tile far larger than the picture, or for millions of steps of an interpreted parser.
"""

from __future__ import annotations

import io

from PIL import Image, TiffImagePlugin

from aladin.errors import ImageError, ImageTooLargeError

# Steps of the parsers that Pillow has in Python: markers, chunks and directories. A photo of 32 MB
# in chunks of 1 kB needs fewer; at some microseconds each they would add up to minutes.
_MAX_READS = 100_000

# A progressive JPEG has about ten scans, each of them one pass over all pixels. Small pictures may
# have more, as their passes are cheap.
_MAX_PASSES = 32

_TILE_WIDTH, _TILE_LENGTH = 322, 323


class BoundedReader(io.BytesIO):
    """A file in memory that can be read only so often."""

    _left = _MAX_READS

    def read(self, size: int | None = -1, /) -> bytes:
        """Read as `io.BytesIO` does.

        Raises:
            OSError: it was read too often.
        """
        self._left -= 1
        if self._left < 0:
            raise OSError(f"more than {_MAX_READS} parts")
        return super().read(size)


def check_cost(picture: Image.Image, data: bytes, source: str, max_pixels: int) -> None:
    """Refuse a picture that would cost too much.

    Args:
        picture: opened, not decoded.
        data: the whole file.
        source: names the picture in errors.
        max_pixels: limit of width times height.

    Raises:
        ImageTooLargeError: too many pixels, or passes over them.
        ImageError: of a kind that only a slow decoder knows.
    """
    pixels = picture.width * picture.height
    if pixels > max_pixels:
        size = f"{picture.width} x {picture.height}"
        raise ImageTooLargeError(source, f"{size} pixels, limit {max_pixels}")
    if isinstance(picture, TiffImagePlugin.TiffImageFile):
        _check_tiles(picture, source, max_pixels)
    if picture.format in ("JPEG", "MPO") or picture.info.get("compression") == "jpeg":
        # Inside of the coded pixels no such pair of bytes occurs, so each one starts a scan.
        scans = data.count(b"\xff\xda")
        if scans * pixels > _MAX_PASSES * max_pixels:
            raise ImageTooLargeError(source, f"{scans} scans of {pixels} pixels each")
    if any(tile[0] == "bmp_rle" for tile in getattr(picture, "tile", ())):
        # Pillow decodes it in Python, for seconds, while the process can do nothing else.
        raise ImageError(source, "a BMP with run-length encoding, expected a plain one")


def _check_tiles(picture: TiffImagePlugin.TiffImageFile, source: str, max_pixels: int) -> None:
    """Refuse tiles larger than any picture may be; each is decoded whole into a buffer."""
    tags = picture.tag_v2
    width, length = (int(tags.get(tag, 0)) for tag in (_TILE_WIDTH, _TILE_LENGTH))
    if width * length > max_pixels:
        raise ImageTooLargeError(source, f"tiles of {width} x {length} pixels, limit {max_pixels}")
