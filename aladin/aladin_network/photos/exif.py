"""Metadata of a photo from its EXIF data: when, with what and where it was taken.

    taken_at   "2024-07-31T18:05:09", the local time that the camera's clock showed; texts of this
               form are ordered as the times are
    camera     "Canon EOS 5D", the maker and the model
    lat, lon   degrees, north and east positive, 6 decimals (11 cm)

What a photo does not tell, or tells in an invalid form, is absent.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from datetime import datetime
from typing import Any

from PIL import ExifTags, Image

from aladin_network.photos.files import CONTROL_CHARACTER

TAKEN_AT, CAMERA, LAT, LON = "taken_at", "camera", "lat", "lon"
EXIF_FIELDS = (TAKEN_AT, CAMERA, LAT, LON)

# Some devices write other separators than the standard's "2024:07:31 18:05:09".
_TIME = re.compile(r"(\d{4})[:/.-](\d\d)[:/.-](\d\d)[ T](\d\d):(\d\d):(\d\d)")
_MOST_CHARACTERS = 100
_DECIMALS = 6


def exif_metadata(exif: Image.Exif) -> dict[str, str | float]:
    """Return the fields of `EXIF_FIELDS` that a photo tells.

    Args:
        exif: EXIF data, untrusted.
    """
    try:
        # Own tags first: when it was taken, digitised, and, if neither is told, last written.
        details = exif.get_ifd(ExifTags.IFD.Exif)
        times = (
            details.get(ExifTags.Base.DateTimeOriginal),
            details.get(ExifTags.Base.DateTimeDigitized),
            exif.get(ExifTags.Base.DateTime),
        )
        found: dict[str, str | float | None] = {
            TAKEN_AT: _taken_at(times),
            CAMERA: _camera(exif.get(ExifTags.Base.Make), exif.get(ExifTags.Base.Model)),
            **_place(exif.get_ifd(ExifTags.IFD.GPSInfo)),
        }
    except Exception:  # broken EXIF data are common, and do not spoil a photo
        return {}
    return {name: value for name, value in found.items() if value is not None}


def _taken_at(times: Iterable[object]) -> str | None:
    """Return the first valid time."""
    for each in times:
        match = _TIME.match(_text(each))
        if match is not None:
            try:
                year, month, day, hour, minute, second = map(int, match.groups())
                return datetime(year, month, day, hour, minute, second).isoformat()
            except ValueError:  # such as "0000:00:00 00:00:00" of a camera without a clock
                continue
    return None


def _camera(make: object, model: object) -> str | None:
    maker, name = _text(make), _text(model)
    # "NIKON CORPORATION" and "NIKON D850" share a word.
    if maker and name.lower().startswith(maker.split()[0].lower()):
        maker = ""
    return f"{maker} {name}".strip()[:_MOST_CHARACTERS] or None


def _place(gps: Mapping[int, Any]) -> dict[str, float]:
    """Return latitude and longitude, both or none."""
    lat = _degrees(gps.get(ExifTags.GPS.GPSLatitude), gps.get(ExifTags.GPS.GPSLatitudeRef), "S", 90)
    lon = _degrees(
        gps.get(ExifTags.GPS.GPSLongitude), gps.get(ExifTags.GPS.GPSLongitudeRef), "W", 180
    )
    # Both zero is written by devices that do not know where they are.
    if lat is None or lon is None or lat == lon == 0:
        return {}
    return {LAT: lat, LON: lon}


def _degrees(parts: Any, reference: object, negative: str, most: int) -> float | None:
    """Convert degrees, minutes and seconds to degrees."""
    if not isinstance(parts, tuple) or not 1 <= len(parts) <= 3:
        return None
    values = [float(part) for part in parts]
    degrees = sum(value / 60**power for power, value in enumerate(values))
    if min(values) < 0 or not degrees <= most:  # also NaN, of a denominator of zero
        return None
    sign = -1 if _text(reference).upper().startswith(negative) else 1
    return round(sign * degrees, _DECIMALS) + 0.0  # -0.0 is 0


def _text(value: object) -> str:
    """Return a text of EXIF data without padding and control characters, or an empty text."""
    if isinstance(value, bytes):
        value = value.decode("ascii", "replace")
    if not isinstance(value, str):
        return ""
    whole = CONTROL_CHARACTER.sub(" ", value.split("\0")[0])
    return " ".join(whole.encode("utf-8", "replace").decode("utf-8").split())
