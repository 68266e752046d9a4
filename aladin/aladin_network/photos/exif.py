"""Metadata of a photo from its EXIF data: when, with what and where it was taken.

    taken_at   "2024-07-31T18:05:09", the local time that the camera's clock showed; texts of this
               form are ordered as the times are
    camera     "Canon EOS 5D", the maker and the model
    lat, lon   degrees, north and east positive, 6 decimals (11 cm)

What a photo does not tell, or tells in an invalid form, is absent; so is a time before there were
photos, or in the future.
"""

from __future__ import annotations

import re
from contextlib import suppress
from datetime import datetime, timedelta
from typing import Any

from PIL import ExifTags, Image

from aladin_network.photos.files import CONTROL_CHARACTER

TAKEN_AT, CAMERA, LAT, LON = "taken_at", "camera", "lat", "lon"
EXIF_FIELDS = (TAKEN_AT, CAMERA, LAT, LON)

# Some devices write other separators than the standard's "2024:07:31 18:05:09".
_TIME = re.compile(r"(\d{4})[:/.-](\d\d)[:/.-](\d\d)[ T](\d\d):(\d\d):(\d\d)")
_MOST_CHARACTERS = 100
_FIRST_PHOTO = datetime(1826, 1, 1)
_OTHER_ZONES = timedelta(days=1)  # by which the time of day elsewhere is at most ahead
_DECIMALS = 6


def exif_metadata(exif: Image.Exif) -> dict[str, str | float]:
    """Return the fields of `EXIF_FIELDS` that a photo tells."""
    found: dict[str, str | float] = {}
    for read in (_taken_at, _camera, _place):
        with suppress(Exception):  # broken EXIF data are common, and do not spoil a photo
            found |= read(exif)
    return found


def _taken_at(exif: Image.Exif) -> dict[str, str | float]:
    """Return the first valid time: of the photo, of its digitisation, or of its last change."""
    details = exif.get_ifd(ExifTags.IFD.Exif)
    for time in (
        details.get(ExifTags.Base.DateTimeOriginal),
        details.get(ExifTags.Base.DateTimeDigitized),
        exif.get(ExifTags.Base.DateTime),
    ):
        match = _TIME.match(_text(time))
        if match is not None:
            with suppress(ValueError):  # such as "0000:00:00 00:00:00" of a camera without a clock
                year, month, day, hour, minute, second = map(int, match.groups())
                taken = datetime(year, month, day, hour, minute, second)
                # A clock that is wrong would put the photo before or behind all others.
                if _FIRST_PHOTO <= taken <= datetime.now() + _OTHER_ZONES:
                    return {TAKEN_AT: taken.isoformat()}
    return {}


def _camera(exif: Image.Exif) -> dict[str, str | float]:
    maker, name = (_text(exif.get(tag)) for tag in (ExifTags.Base.Make, ExifTags.Base.Model))
    # "NIKON CORPORATION" and "NIKON D850" share a word.
    if maker and name.lower().startswith(maker.split()[0].lower()):
        maker = ""
    camera = f"{maker} {name}".strip()[:_MOST_CHARACTERS]
    return {CAMERA: camera} if camera else {}


def _place(exif: Image.Exif) -> dict[str, str | float]:
    """Return latitude and longitude, both or none."""
    gps, tags = exif.get_ifd(ExifTags.IFD.GPSInfo), ExifTags.GPS
    lat = _degrees(gps.get(tags.GPSLatitude), gps.get(tags.GPSLatitudeRef), "S", 90)
    lon = _degrees(gps.get(tags.GPSLongitude), gps.get(tags.GPSLongitudeRef), "W", 180)
    # Both zero is written by devices that do not know where they are.
    if lat is None or lon is None or lat == lon == 0:
        return {}
    return {LAT: lat, LON: lon}


def _degrees(parts: Any, reference: object, negative: str, most: int) -> float | None:
    """Convert degrees, minutes and seconds to degrees."""
    if parts is None:
        return None
    values = [float(part) for part in (parts if isinstance(parts, tuple) else (parts,))]
    degrees = sum(value / 60**power for power, value in enumerate(values))
    if min(values) < 0 or not degrees <= most:  # also NaN, of a denominator of zero
        return None
    sign = -1 if _text(reference).upper().startswith(negative) else 1
    return round(sign * degrees, _DECIMALS) + 0.0  # -0.0 is 0


def _text(value: object) -> str:
    """Return a text of EXIF data without padding and control characters, or an empty text."""
    if isinstance(value, str):  # Pillow decodes all bytes as Latin-1
        with suppress(UnicodeEncodeError):
            value = value.encode("latin-1")
    if isinstance(value, bytes):
        try:
            value = value.decode("utf-8")
        except UnicodeDecodeError:
            value = value.decode("latin-1")
    if not isinstance(value, str):
        return ""
    whole = CONTROL_CHARACTER.sub(" ", value.split("\0")[0])
    return " ".join(whole.encode("utf-8", "replace").decode("utf-8").split())
