"""EXIF data of a photo: when, with what and where it was taken, and what its owner says of it.

    taken_at   "2024-07-31T18:05:09", the local time that the camera's clock showed
    camera     "Canon EOS 5D", the maker and the model
    lat, lon   degrees, north and east positive, 6 decimals (11 cm)

What a photo does not tell, or tells in an invalid form, is absent; so is a time before there were
photos, or in the future. The other fields are those of `aladin_network.photos.fields`.
"""

from __future__ import annotations

import re
from contextlib import suppress
from typing import Any

from PIL import ExifTags, Image

from aladin_network.photos.dates import Moment, moment_of, zone_between
from aladin_network.photos.fields import (
    CAMERA,
    DESCRIPTION,
    KEYWORDS,
    MOST_CHARACTERS,
    TITLE,
    Details,
    MomentKind,
    Told,
    list_details,
    place_details,
    plain_text,
    rating_details,
    text_details,
)
from aladin_network.types import MAX_CAPTION_CHARS

_MOST_IN_NAME = 100
_TAGS = ExifTags.Base
_TIMES: dict[MomentKind, tuple[int, int]] = {
    "taken": (_TAGS.DateTimeOriginal, _TAGS.OffsetTimeOriginal),
    "digitised": (_TAGS.DateTimeDigitized, _TAGS.OffsetTimeDigitized),
    "changed": (_TAGS.DateTime, _TAGS.OffsetTime),
}
# What cameras and programs write as a description of every photo.
_NO_DESCRIPTION = re.compile(
    r".*digital camera|sony dsc|exif[_ ]jpeg.*|default|dcim.*|jpeg|untitled|"
    r"created (with|by) .*|file written by .*|[\w-]+\.(jpe?g|tiff?|png)",
    re.IGNORECASE,
)
_RATING_PERCENT = 0x4749


def exif_told(exif: Image.Exif) -> Told:
    """Return what the EXIF data of a photo tell."""
    details = Details()
    for read in (_camera, _place, _words, _rating):
        with suppress(Exception):  # broken EXIF data are common, and do not spoil a photo
            details |= read(exif)
    moments: dict[MomentKind, Moment] = {}
    for kind in _TIMES:
        with suppress(Exception):
            moment = _moment(exif, kind)
            if moment is not None:
                moments[kind] = moment
    return Told(details, moments)


def exif_zone(exif: Image.Exif) -> str | None:
    """Return the offset between the camera's clock and the time of the satellites, or None."""
    with suppress(Exception):
        gps, tags = exif.get_ifd(ExifTags.IFD.GPSInfo), ExifTags.GPS
        hour, minute, second = (int(float(each)) for each in gps[tags.GPSTimeStamp])
        day = _text(gps.get(tags.GPSDateStamp)).replace(":", "-")
        taken = _moment(exif, "taken")
        if taken is not None:
            # The time of the last fix; it may be some seconds old.
            utc = f"{day}T{hour:02d}:{minute:02d}:{second:02d}"
            return zone_between(taken.text, utc, within_s=120)
    return None


def _text(value: object, most: int = MOST_CHARACTERS) -> str:
    if isinstance(value, str):  # Pillow decodes all bytes as Latin-1
        with suppress(UnicodeEncodeError):
            value = value.encode("latin-1")
    return plain_text(value, most)


def _moment(exif: Image.Exif, kind: MomentKind) -> Moment | None:
    inner = exif.get_ifd(ExifTags.IFD.Exif)
    time, offset = _TIMES[kind]
    value = exif.get(time) if kind == "changed" else inner.get(time)
    return moment_of(_text(value), "exif", _text(inner.get(offset)))


def _camera(exif: Image.Exif) -> Details:
    maker, name = (_text(exif.get(tag)) for tag in (_TAGS.Make, _TAGS.Model))
    # "NIKON CORPORATION" and "NIKON D850" share a word.
    if maker and name.lower().startswith(maker.split()[0].lower()):
        maker = ""
    camera = f"{maker} {name}".strip()[:_MOST_IN_NAME]
    return {CAMERA: camera} if camera else {}


def _place(exif: Image.Exif) -> Details:
    gps, tags = exif.get_ifd(ExifTags.IFD.GPSInfo), ExifTags.GPS
    return place_details(
        _degrees(gps.get(tags.GPSLatitude), gps.get(tags.GPSLatitudeRef), "S"),
        _degrees(gps.get(tags.GPSLongitude), gps.get(tags.GPSLongitudeRef), "W"),
    )


def _degrees(parts: Any, reference: object, negative: str) -> float | None:
    """Convert degrees, minutes and seconds to degrees."""
    if parts is None:
        return None
    values = [float(part) for part in (parts if isinstance(parts, tuple) else (parts,))]
    degrees = sum(value / 60**power for power, value in enumerate(values))
    if not min(values) >= 0 or degrees != degrees:  # NaN is of a denominator of zero
        return None
    return -degrees if _text(reference).upper().startswith(negative) else degrees


def _words(exif: Image.Exif) -> Details:
    described = _text(exif.get(_TAGS.ImageDescription), MAX_CAPTION_CHARS)
    if _NO_DESCRIPTION.fullmatch(described):
        described = ""
    title, comment, keywords = (
        _utf16(exif.get(tag)) for tag in (_TAGS.XPTitle, _TAGS.XPComment, _TAGS.XPKeywords)
    )
    return {
        **text_details(TITLE, [title]),
        **text_details(DESCRIPTION, [described, comment]),
        **list_details(KEYWORDS, keywords.split(";")),
    }


def _utf16(value: object) -> str:
    """Return a text as Windows writes it; it is empty if there is none."""
    raw = bytes(value) if isinstance(value, (bytes, tuple)) else b""  # pyright: ignore[reportUnknownArgumentType]
    return raw.decode("utf-16-le", "replace").split("\0")[0]


def _rating(exif: Image.Exif) -> Details:
    return rating_details(exif.get(_TAGS.Rating), exif.get(_RATING_PERCENT))
