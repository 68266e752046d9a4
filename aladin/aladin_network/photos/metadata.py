"""What the file of a photo tells of it, by XMP, IPTC and EXIF together."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from typing import cast

from PIL import ExifTags, Image, ImageFile
from PIL.IptcImagePlugin import getiptcinfo

from aladin_network.photos.dates import Moment, moment_of
from aladin_network.photos.exif import exif_told, exif_zone
from aladin_network.photos.fields import (
    DESCRIPTION,
    KEYWORDS,
    PLACE,
    TITLE,
    Details,
    MomentKind,
    Told,
    combined,
    list_details,
    plain_text,
    text_details,
)
from aladin_network.photos.xmp import xmp_told

# The record of IPTC that describes a photo, and numbers of its fields.
_OF_PHOTOS = 2
_TEXTS = {TITLE: (5, 105), DESCRIPTION: (120,)}
_KEYWORDS, _PLACES = 25, (92, 90, 95, 101)
_TIMES: dict[MomentKind, tuple[int, int]] = {"taken": (55, 60), "digitised": (62, 63)}
_DAY_DIGITS = 8


def file_details(exif: Image.Exif | None, picture: Image.Image | None) -> Details:
    """Return what a photo's file tells.

    Args:
        exif: Its EXIF data, or None if they cannot be read.
        picture: The picture as Pillow has opened it, with XMP and IPTC's data, or None.
    """
    packet: object = None if picture is None else picture.info.get("xmp")
    if packet is None and exif is not None:
        packet = exif.get(ExifTags.Base.XMLPacket)
    sources: list[Told] = []
    if packet:
        with suppress(Exception):  # broken metadata are common, and do not spoil a photo
            sources.append(xmp_told(_bytes_of(packet)))
    with suppress(Exception):
        records = getiptcinfo(cast(ImageFile.ImageFile, picture))
        sources += [_iptc_told(records)] if records else []
    if exif:
        return combined([*sources, exif_told(exif)], exif_zone(exif))
    return combined(sources) if sources else {}


def _bytes_of(value: object) -> bytes:
    if isinstance(value, str):
        return value.encode("utf-8", "replace")
    return bytes(value) if isinstance(value, (bytes, tuple)) else b""  # pyright: ignore[reportUnknownArgumentType]


def _iptc_told(values: Mapping[tuple[int, int], bytes | list[bytes]]) -> Told:
    """Return what IPTC's records (IIM) tell."""

    def all_of(*numbers: int) -> list[bytes]:
        found: list[bytes] = []
        for number in numbers:
            value = values.get((_OF_PHOTOS, number), [])
            found += value if isinstance(value, list) else [value]
        return found

    details = {
        **text_details(TITLE, all_of(*_TEXTS[TITLE])),
        **text_details(DESCRIPTION, all_of(*_TEXTS[DESCRIPTION])),
        **list_details(KEYWORDS, all_of(_KEYWORDS)),
        **list_details(PLACE, all_of(*_PLACES)),
    }
    moments: dict[MomentKind, Moment] = {}
    for kind, (day, time) in _TIMES.items():
        moment = _moment(*(plain_text(b"".join(all_of(each)[:1])) for each in (day, time)))
        if moment is not None:
            moments[kind] = moment
    return Told(details, moments)


def _moment(day: str, time: str) -> Moment | None:
    """Return a time of the forms 20240731 and 180509+0200."""
    if len(day) != _DAY_DIGITS or not day.isdigit():
        return None
    text = f"{day[:4]}-{day[4:6]}-{day[6:]}"
    if time[:6].isdigit() and len(time) >= 6:
        text += f"T{time[:2]}:{time[2:4]}:{time[4:6]}{time[6:]}"
    return moment_of(text, "iptc")
