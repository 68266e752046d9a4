"""Whether a picture file holds the picture and nothing else.

Where and when a photo was taken, and by whom, stands beside its pixels: in EXIF, XMP and IPTC
blocks, comments, colour profiles, previews, and after its end. Only what is known to tell nothing
is let through, so that a block nobody thought of counts as telling something.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Callable

# Segments that say how the pixels are coded: tables, frames, scans, restarts.
_JPEG_CODING = {0xC4, 0xCC, 0xDA, 0xDB, 0xDD} | (set(range(0xC0, 0xD0)) - {0xC8})
# JFIF without a preview, and the mark that tells how Adobe's programs code colours.
_JPEG_PLAIN = {0xE0: (b"JFIF\0", 16), 0xEE: (b"Adobe", 14)}
# In the coded pixels a zero byte, or the number of a restart, follows each 0xFF.
_JPEG_NEXT = re.compile(rb"\xff[^\x00\xd0-\xd7\xff]")

_PNG_PIXELS = {b"IHDR", b"PLTE", b"tRNS", b"IDAT", b"IEND", b"acTL", b"fcTL", b"fdAT"}
_PNG_PLAIN = _PNG_PIXELS | {b"gAMA", b"cHRM", b"sRGB", b"sBIT", b"bKGD", b"pHYs"}

_WEBP_PLAIN = {b"VP8 ", b"VP8L", b"VP8X", b"ALPH", b"ANIM", b"ANMF"}


def is_bare(data: bytes, format: str) -> bool:
    """Return whether a file has no metadata, as far as its format is known here.

    Args:
        data: the whole file, which a decoder takes for a picture.
        format: as Pillow names it.
    """
    check = _CHECKS.get(format)
    try:
        return check is not None and check(data)
    except (struct.error, IndexError):  # a block that goes beyond the end
        return False


def _is_bare_jpeg(data: bytes) -> bool:
    place = 2
    while data[place] == 0xFF:
        kind = data[place + 1]
        if kind == 0xD9:
            return place + 2 == len(data)
        (length,) = struct.unpack_from(">H", data, place + 2)
        if kind in _JPEG_PLAIN:
            name, size = _JPEG_PLAIN[kind]
            if length != size or not data.startswith(name, place + 4):
                return False
        elif kind not in _JPEG_CODING:
            return False
        place += 2 + length
        if kind == 0xDA:
            following = _JPEG_NEXT.search(data, place)
            if following is None:
                return False
            place = following.start()
    return False


def _is_bare_png(data: bytes) -> bool:
    place = 8
    while place < len(data):
        length, kind = struct.unpack_from(">I4s", data, place)
        if kind not in _PNG_PLAIN:
            return False
        place += 12 + length
        if kind == b"IEND":
            return place == len(data)
    return False


def _is_bare_webp(data: bytes) -> bool:
    (size,) = struct.unpack_from("<I", data, 4)
    if size + 8 != len(data):
        return False
    place = 12
    while place < len(data):
        kind, length = struct.unpack_from("<4sI", data, place)
        if kind not in _WEBP_PLAIN:
            return False
        place += 8 + length + length % 2
    return place == len(data)


_CHECKS: dict[str, Callable[[bytes], bool]] = {
    "JPEG": _is_bare_jpeg,
    "PNG": _is_bare_png,
    "WEBP": _is_bare_webp,
}
