"""Removal of metadata from picture files without decoding them, and reduction of ICC profiles.

Where and when a photo was taken, and by whom, is stored beside its pixels: in EXIF, XMP and IPTC
blocks, comments, colour profiles, previews, and after the end of the picture. Only blocks that are
known to be harmless are kept; unknown blocks are removed.

A colour profile is needed for correct colours, but may identify a device, its owner or a date, or
contain arbitrary text. It is reduced to the tags that determine the colours of pixels, with a
header and a description of its own.
"""

from __future__ import annotations

import re
import struct
import zlib
from collections.abc import Callable, Iterator

_HEADER_BYTES, _ENTRY_BYTES = 128, 12
# Profiles of scanners and printers contain tables of up to some hundred kB each.
_MOST_BYTES, _MOST_TAGS = 4 * 2**20, 100

_COLOUR_TAGS = {
    *(b"rXYZ", b"gXYZ", b"bXYZ", b"rTRC", b"gTRC", b"bTRC", b"kTRC", b"wtpt", b"chad", b"cicp"),
    *(b"A2B0", b"A2B1", b"A2B2", b"B2A0", b"B2A1", b"B2A2"),
}
_TABLES = {b"mft1", b"mft2", b"mAB ", b"mBA "}
_SIZES = {b"XYZ ": 20, b"sf32": 44, b"cicp": 12}
_PARAMETERS = (1, 3, 4, 5, 7)  # of a parametric curve, by its kind
_NAME = "colours"

# Segments needed to decode the pixels: tables, frames, scans, restarts.
_JPEG_CODING = {0xC4, 0xCC, 0xDA, 0xDB, 0xDD} | (set(range(0xC0, 0xD0)) - {0xC8})
# JFIF, and the Adobe marker that gives the colour transform: their first bytes, and the length of
# what is kept.
_JPEG_PLAIN = {0xE0: (b"JFIF\0", 16), 0xEE: (b"Adobe", 14)}

_JPEG_MOST_SEGMENT = 65_533
# In the entropy-coded data, each 0xFF is followed by a zero byte or the number of a restart marker.
_JPEG_NEXT = re.compile(rb"\xff[^\x00\xd0-\xd7\xff]")

_PNG_PIXELS = {b"IHDR", b"PLTE", b"tRNS", b"IDAT", b"IEND", b"acTL", b"fcTL", b"fdAT"}
_PNG_PLAIN = {b"gAMA", b"cHRM", b"sRGB", b"sBIT", b"bKGD", b"pHYs", b"cICP"}

_WEBP_PLAIN = {b"VP8 ", b"VP8L", b"ALPH", b"ANIM"}
_WEBP_FRAME_BYTES = 16  # of a frame, before the chunks in it


def bare_profile(profile: bytes) -> bytes | None:
    """Return a profile with the same colours and no other information."""
    try:
        return _reduced(profile)
    except (struct.error, IndexError):  # it goes beyond its end
        return None


def _reduced(profile: bytes) -> bytes | None:
    if len(profile) > _MOST_BYTES or profile[36:40] != b"acsp":
        return None
    (count,) = struct.unpack_from(">I", profile, _HEADER_BYTES)
    if count > _MOST_TAGS:
        return None
    tags: dict[bytes, bytes] = {}
    for number in range(count):
        place = _HEADER_BYTES + 4 + _ENTRY_BYTES * number
        name, start, size = struct.unpack_from(">4sII", profile, place)
        value = profile[start : start + size]
        if name in _COLOUR_TAGS:
            if len(value) != size or not _is_numbers(value):
                return None
            tags[name] = value
    if not tags:
        return None
    is_old = profile[8] < 4
    tags[b"desc"] = _old_description() if is_old else _description()
    tags[b"cprt"] = b"text\0\0\0\0\0" if is_old else _description()
    return _written(profile, tags)


def _is_numbers(value: bytes) -> bool:
    """Whether a tag's value has a type and a size that leave no room for text."""
    kind = value[:4]
    if kind in _TABLES:
        return True
    if kind == b"curv":
        return len(value) == 12 + 2 * struct.unpack_from(">I", value, 8)[0]
    if kind == b"para":
        return len(value) == 12 + 4 * _PARAMETERS[struct.unpack_from(">H", value, 8)[0]]
    return len(value) == _SIZES.get(kind)


def _description() -> bytes:
    text = _NAME.encode("utf-16-be")
    return struct.pack(">4s4xII2s2sII", b"mluc", 1, 12, b"en", b"US", len(text), 28) + text


def _old_description() -> bytes:
    text = _NAME.encode("ascii") + b"\0"
    # Followed by the same text in Unicode and in a legacy Macintosh encoding: both are left empty.
    return struct.pack(">4s4xI", b"desc", len(text)) + text + bytes(4 + 4 + 2 + 1 + 67)


def _written(profile: bytes, tags: dict[bytes, bytes]) -> bytes:
    start = _HEADER_BYTES + 4 + _ENTRY_BYTES * len(tags)
    table, values = struct.pack(">I", len(tags)), b""
    places: dict[bytes, int] = {}  # red, green and blue mostly share a curve
    for name, value in tags.items():
        if value not in places:
            places[value] = start + len(values)
            values += value + bytes(-len(value) % 4)
        table += struct.pack(">4sII", name, places[value], len(value))
    # Version, class, colour spaces; signature; intent and white point. Dates, devices and makers
    # are zero.
    header = bytes(4) + profile[8:24] + bytes(12) + b"acsp" + bytes(24) + profile[64:80]
    header = struct.pack(">I", start + len(values)) + header + bytes(48)
    return header + table + values


_JPEG_PROFILE, _JPEG_PROFILE_NAME = 0xE2, b"ICC_PROFILE\0"

_PNG_MOST_PLAIN, _PNG_MOST_PROFILE = 32, 4 * 2**20

_WEBP_PROFILE_FLAG, _WEBP_TELLING_FLAGS = 0x20, 0x08 | 0x04


class _UnknownError(Exception):
    """The structure of the file is invalid or not supported."""


def without_metadata(data: bytes, format: str) -> bytes | None:
    """Return a picture file without its metadata.

    Orientation is metadata: the caller has to look at it before.
    """
    cut = _CUTS.get(format)
    if cut is None:
        return None
    try:
        kept = b"".join(cut(data))
    except (_UnknownError, struct.error, IndexError):  # the last two: beyond the end
        return None
    return data if kept == data else kept


def _cut_jpeg(data: bytes) -> Iterator[bytes]:
    profile: dict[int, bytes] = {}
    kept: list[bytes] = []
    for kind, segment in _jpeg_segments(data):
        if kind in _JPEG_CODING:
            kept.append(segment)
        elif kind in _JPEG_PLAIN:
            kept.append(_plain_segment(kind, segment))
        elif kind == _JPEG_PROFILE and segment.startswith(_JPEG_PROFILE_NAME, 4):
            profile[segment[16]] = segment[18:]
    yield data[:2]
    yield from _profile_segments(b"".join(profile[number] for number in sorted(profile)))
    yield from kept
    yield b"\xff\xd9"


def _jpeg_segments(data: bytes) -> Iterator[tuple[int, bytes]]:
    """Yield the segments between start and end by kind, that of a scan with its coded data."""
    place = 2
    while data[place + 1] != 0xD9:
        if data[place] != 0xFF:
            raise _UnknownError
        kind = data[place + 1]
        if kind == 0xFF:  # filling
            place += 1
            continue
        (length,) = struct.unpack_from(">H", data, place + 2)
        end = place + 2 + length
        if length < 2 or end > len(data):
            raise _UnknownError
        if kind == 0xDA:
            following = _JPEG_NEXT.search(data, end)
            if following is None:
                raise _UnknownError
            end = following.start()
        yield kind, data[place:end]
        place = end


def _plain_segment(kind: int, segment: bytes) -> bytes:
    name, length = _JPEG_PLAIN[kind]
    if not segment.startswith(name, 4) or len(segment) < 2 + length:
        return b""
    fields = segment[4 : 2 + length]
    if kind == 0xE0:  # without the preview, whose size the last two bytes are
        fields = fields[:-2] + b"\0\0"
    return struct.pack(">BBH", 0xFF, kind, length) + fields


def _profile_segments(profile: bytes) -> Iterator[bytes]:
    bare = bare_profile(profile) or b""
    room = _JPEG_MOST_SEGMENT - len(_JPEG_PROFILE_NAME) - 2
    parts = [bare[start : start + room] for start in range(0, len(bare), room)]
    for number, part in enumerate(parts, 1):
        content = _JPEG_PROFILE_NAME + bytes((number, len(parts))) + part
        yield struct.pack(">BBH", 0xFF, _JPEG_PROFILE, 2 + len(content)) + content


def _cut_png(data: bytes) -> Iterator[bytes]:
    yield data[:8]
    place, has_pixels = 8, False
    while True:
        length, kind = struct.unpack_from(">I4s", data, place)
        chunk = data[place : place + 12 + length]
        if len(chunk) < 12 + length:
            raise _UnknownError
        has_pixels |= kind == b"IDAT"
        if kind in _PNG_PIXELS or (kind in _PNG_PLAIN and length <= _PNG_MOST_PLAIN):
            yield chunk
        elif kind == b"iCCP":
            yield _png_profile(chunk[8:-4])
        elif kind == b"eXIf" and has_pixels:
            raise _UnknownError  # only who decodes the pixels finds the orientation in it
        if kind == b"IEND":
            return
        place += 12 + length


def _png_profile(content: bytes) -> bytes:
    _, _, packed = content.partition(b"\0")
    unpacking = zlib.decompressobj()
    try:
        profile = unpacking.decompress(packed[1:], _PNG_MOST_PROFILE)
    except zlib.error:
        return b""
    bare = bare_profile(profile)
    if bare is None:
        return b""
    content = b"colours\0\0" + zlib.compress(bare)
    return struct.pack(">I", len(content)) + _checked(b"iCCP" + content)


def _checked(content: bytes) -> bytes:
    return content + struct.pack(">I", zlib.crc32(content))


def _cut_webp(data: bytes) -> Iterator[bytes]:
    (size,) = struct.unpack_from("<I", data, 4)
    if len(data) < size + 8:
        raise _UnknownError
    kept: list[tuple[bytes, bytes]] = []
    for kind, content in _webp_chunks(data[12 : size + 8]):
        if kind == b"ICCP":
            profile = bare_profile(content)
            if profile is not None:
                kept.append((kind, profile))
        elif kind == b"ANMF":
            kept.append((kind, _bare_frame(content)))
        elif kind in _WEBP_PLAIN or kind == b"VP8X":
            kept.append((kind, content))
    removed = _WEBP_TELLING_FLAGS
    if all(kind != b"ICCP" for kind, _ in kept):
        removed |= _WEBP_PROFILE_FLAG
    body = b"".join(
        _webp_chunk(kind, _without_flags(content, removed) if kind == b"VP8X" else content)
        for kind, content in kept
    )
    yield data[:4] + struct.pack("<I", 4 + len(body)) + data[8:12] + body


def _without_flags(header: bytes, flags: int) -> bytes:
    return bytes((header[0] & ~flags,)) + header[1:]


def _bare_frame(content: bytes) -> bytes:
    inner = _webp_chunks(content[_WEBP_FRAME_BYTES:])
    kept = (_webp_chunk(kind, value) for kind, value in inner if kind in _WEBP_PLAIN)
    return content[:_WEBP_FRAME_BYTES] + b"".join(kept)


def _webp_chunks(data: bytes) -> Iterator[tuple[bytes, bytes]]:
    place = 0
    while place < len(data):
        kind, length = struct.unpack_from("<4sI", data, place)
        content = data[place + 8 : place + 8 + length]
        if len(content) < length:
            raise _UnknownError
        yield kind, content
        place += 8 + length + length % 2


def _webp_chunk(kind: bytes, content: bytes) -> bytes:
    return struct.pack("<4sI", kind, len(content)) + content + bytes(len(content) % 2)


_CUTS: dict[str, Callable[[bytes], Iterator[bytes]]] = {
    "JPEG": _cut_jpeg,
    "MPO": _cut_jpeg,
    "PNG": _cut_png,
    "WEBP": _cut_webp,
}
