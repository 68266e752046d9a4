"""ICC profiles reduced to the numbers that colours need.

A profile may name a device, its owner, a date, or hold text of any kind. What is written here has
the tags that turn pixels into colours, and a header and a description of its own.
"""

from __future__ import annotations

import struct

_HEADER_BYTES, _ENTRY_BYTES = 128, 12
# Profiles of scanners and printers have tables of up to some hundred kB each.
_MOST_BYTES, _MOST_TAGS = 4 * 2**20, 100

_COLOUR_TAGS = {
    *(b"rXYZ", b"gXYZ", b"bXYZ", b"rTRC", b"gTRC", b"bTRC", b"kTRC", b"wtpt", b"chad", b"cicp"),
    *(b"A2B0", b"A2B1", b"A2B2", b"B2A0", b"B2A1", b"B2A2"),
}
_TABLES = {b"mft1", b"mft2", b"mAB ", b"mBA "}
_SIZES = {b"XYZ ": 20, b"sf32": 44, b"cicp": 12}
_PARAMETERS = (1, 3, 4, 5, 7)  # of a parametric curve, by its kind
_NAME = "colours"


def bare_profile(profile: bytes) -> bytes | None:
    """Return a profile with the same colours that tells nothing else.

    Args:
        profile: An ICC profile, untrusted.

    Returns:
        The reduced profile, or None if the given one is damaged or of a kind unknown here.
    """
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
    """Whether a tag's value is of a type, and of the size of it, that has no room for text."""
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
    # Followed by the same in Unicode and in a code of old Macintoshes: both are left empty.
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
    # Version, class, spaces; mark; intent and white point. Dates, devices and makers are zero.
    header = bytes(4) + profile[8:24] + bytes(12) + b"acsp" + bytes(24) + profile[64:80]
    header = struct.pack(">I", start + len(values)) + header + bytes(48)
    return header + table + values
