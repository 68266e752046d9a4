"""Camera RAW files: small DNGs, with a preview or without one."""

from __future__ import annotations

import io
import struct
from typing import NamedTuple

import numpy as np
from PIL import Image

_BYTE, _TEXT, _SHORT, _LONG, _RATIONAL, _SIGNED_RATIONAL = 1, 2, 3, 4, 5, 10
_SENSOR_PX = (64, 48)
_THUMBNAIL_PX = 8


class _Entry(NamedTuple):
    """An entry of a TIFF's directory."""

    tag: int
    kind: int
    count: int
    value: bytes


def _shorts(tag: int, *values: int) -> _Entry:
    return _Entry(tag, _SHORT, len(values), struct.pack(f"<{len(values)}H", *values))


def _longs(tag: int, *values: int) -> _Entry:
    return _Entry(tag, _LONG, len(values), struct.pack(f"<{len(values)}I", *values))


def _bytes(tag: int, *values: int) -> _Entry:
    return _Entry(tag, _BYTE, len(values), bytes(values))


def _text(tag: int, text: str) -> _Entry:
    return _Entry(tag, _TEXT, len(text) + 1, text.encode() + b"\0")


def _directory(entries: list[_Entry], place: int) -> bytes:
    """The bytes of a directory at a place in the file, followed by its longer values."""
    end = place + 2 + 12 * len(entries) + 4
    lines, behind = struct.pack("<H", len(entries)), b""
    for entry in sorted(entries):
        value = entry.value
        if len(value) > 4:
            value = struct.pack("<I", end + len(behind))
            behind += entry.value + bytes(len(entry.value) % 2)
        lines += struct.pack("<HHI", *entry[:3]) + value.ljust(4, b"\0")
    return lines + bytes(4) + behind


def make_dng(
    preview: bytes | None, *, orientation: int = 1, taken: str = "2021:05:06 07:08:09"
) -> bytes:
    """A DNG of 64 x 48 px.

    Args:
        preview: A JPEG that is embedded, or None.
        orientation: By EXIF, of the whole file.
        taken: When it was taken, by EXIF.
    """
    width, height = _SENSOR_PX
    sensor = np.arange(width * height, dtype="<u2").tobytes()

    def directories(places: list[int]) -> list[bytes]:
        of_sensor, of_preview, sensor_at, preview_at, thumbnail_at = places
        ones = struct.pack(
            "<18i", *(value for each in np.eye(3, dtype=int).flat for value in (each, 1))
        )
        first = [
            _longs(254, 1),
            *(_longs(256, _THUMBNAIL_PX), _longs(257, _THUMBNAIL_PX), _shorts(258, 8, 8, 8)),
            *(_shorts(259, 1), _shorts(262, 2), _text(271, "Acme Corp"), _text(272, "Acme X1")),
            *(_longs(273, thumbnail_at), _shorts(274, orientation), _shorts(277, 3)),
            *(_longs(278, _THUMBNAIL_PX), _longs(279, 3 * _THUMBNAIL_PX**2), _text(306, taken)),
            _longs(330, of_sensor, of_preview) if preview else _longs(330, of_sensor),
            *(_bytes(50706, 1, 4, 0, 0), _bytes(50707, 1, 1, 0, 0), _text(50708, "Acme X1")),
            _Entry(50721, _SIGNED_RATIONAL, 9, ones),
            _Entry(50728, _RATIONAL, 3, struct.pack("<6I", 1, 1, 1, 1, 1, 1)),
            _shorts(50778, 21),
        ]
        raw = [
            *(_longs(254, 0), _longs(256, width), _longs(257, height), _shorts(258, 16)),
            *(_shorts(259, 1), _shorts(262, 32803), _longs(273, sensor_at), _shorts(277, 1)),
            *(_longs(278, height), _longs(279, len(sensor)), _shorts(33421, 2, 2)),
            *(_bytes(33422, 0, 1, 1, 2), _shorts(50714, 0), _shorts(50717, 65535)),
        ]
        shown: list[_Entry] = []
        if preview is not None:
            size = Image.open(io.BytesIO(preview)).size
            shown = [
                *(_longs(254, 1), _longs(256, size[0]), _longs(257, size[1])),
                *(_shorts(258, 8, 8, 8), _shorts(259, 7), _shorts(262, 6)),
                *(_longs(273, preview_at), _shorts(277, 3), _longs(278, size[1])),
                _longs(279, len(preview)),
            ]
        return [
            _directory(first, 8),
            _directory(raw, of_sensor),
            _directory(shown, of_preview) if shown else b"",
        ]

    # The lengths do not depend on the places.
    parts = [*directories([0] * 5), sensor, preview or b""]
    places = [8 + sum(map(len, parts[: number + 1])) for number in range(5)]
    thumbnail = bytes(3 * _THUMBNAIL_PX**2)
    return b"II*\0" + struct.pack("<I", 8) + b"".join([*directories(places), *parts[3:], thumbnail])
