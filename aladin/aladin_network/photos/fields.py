"""Fields that photos, and the files beside them, tell of a photo; which source is believed.

Each field comes from the first source that has it:

    the details beside the photo (``photo.json``), its ``.xmp``, Google Takeout's file;
    in the photo XMP, IPTC, EXIF; for the date also its name, and the time of its file.

What belongs together (a date and where it comes from, both coordinates) comes from one source.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, Literal

from aladin_network.photos.dates import Moment, zone_between
from aladin_network.photos.files import CONTROL_CHARACTER
from aladin_network.types import MAX_CAPTION_CHARS

TITLE, DESCRIPTION, KEYWORDS, PEOPLE = "title", "description", "keywords", "people"
RATING, FAVOURITE = "rating", "favourite"
TAKEN_AT, UTC_OFFSET, DATE_SOURCE = "taken_at", "utc_offset", "date_source"
CAMERA, PLACE, LAT, LON = "camera", "place", "lat", "lon"
_TOGETHER = ((TAKEN_AT, UTC_OFFSET, DATE_SOURCE), (LAT, LON))

Value = bool | int | float | str | list[str]
Details = dict[str, Value]

# A name, a keyword or a title; longer ones are cut.
MOST_CHARACTERS = 200
# Entries of a list, and their characters: what one file says has to fit into an item's metadata.
_MOST_IN_LIST, _MOST_OF_LIST = 100, 4000
_DECIMALS = 6
_LEAST_RATING, _MOST_RATING = -1, 5

# When a photo was taken, digitised, or last changed: the first one that is known counts.
MomentKind = Literal["taken", "digitised", "changed"]
_KINDS: tuple[MomentKind, ...] = ("taken", "digitised", "changed")


@dataclass(frozen=True)
class Told:
    """What one source tells: fields other than the date, and the times it names."""

    details: Details = field(default_factory=dict[str, Value])
    moments: Mapping[MomentKind, Moment] = field(default_factory=dict[MomentKind, Moment])


def combined(sources: Iterable[Told], zone: str | None = None) -> Details:
    """Return each field from the first source that has it, and one date.

    Args:
        sources: Those of one file, the most reliable first.
        zone: Offset from UTC that the file tells elsewhere, or None.
    """
    told, found = list(sources), Details()
    for source in told:
        found = over(found, source.details)
    by_kind = [each.moments[kind] for kind in _KINDS for each in told if kind in each.moments]
    # A date without a time of day yields to one that has it.
    best = next((each for each in by_kind if each.has_time), next(iter(by_kind), None))
    if best is None:
        return found
    same = (each.offset for each in by_kind if each.text == best.text and each.offset)
    return found | date_details(best._replace(offset=next(same, zone if best.has_time else None)))


def date_details(moment: Moment | None) -> Details:
    """Return the fields of a date."""
    if moment is None:
        return {}
    offset = {} if moment.offset is None else {UTC_OFFSET: moment.offset}
    return {TAKEN_AT: moment.text, **offset, DATE_SOURCE: moment.source}


def over(first: Mapping[str, Any], second: Mapping[str, Any]) -> dict[str, Any]:
    """Return the fields of two sources; those of the first one count where both have them."""
    rest = dict(second)
    for group in _TOGETHER:
        if any(name in first for name in group):
            rest = {name: value for name, value in rest.items() if name not in group}
    # Google Takeout knows no local time: that of the same moment by the photo's own clock stays.
    dated = first.get(DATE_SOURCE) == "takeout" and DATE_SOURCE in second
    zone = zone_between(str(second[TAKEN_AT]), str(first[TAKEN_AT])) if dated else None
    if zone is None or second.get(UTC_OFFSET, zone) != zone:
        return {**rest, **first}
    own = {name: second[name] for name in (TAKEN_AT, DATE_SOURCE)}
    return {**rest, **first, **own, UTC_OFFSET: zone}


def plain_text(value: object, most: int = MOST_CHARACTERS) -> str:
    """Return a text without padding and control characters, or an empty text if it is none.

    Bytes are UTF-8, or else Latin-1.
    """
    if isinstance(value, bytes):
        try:
            value = value.decode("utf-8")
        except UnicodeDecodeError:
            value = value.decode("latin-1")
    if not isinstance(value, str):
        return ""
    whole = CONTROL_CHARACTER.sub(" ", value.split("\0")[0])
    return " ".join(whole.encode("utf-8", "replace").decode("utf-8").split())[:most].rstrip()


def text_details(name: str, values: Iterable[object]) -> Details:
    """Return a field of one text, the first that is not empty."""
    most = MAX_CAPTION_CHARS if name == DESCRIPTION else MOST_CHARACTERS
    text = next(filter(None, (plain_text(value, most) for value in values)), None)
    return {} if text is None else {name: text}


def list_details(name: str, values: Iterable[object]) -> Details:
    """Return a field of several texts, each once; letter case makes no difference."""
    found: dict[str, str] = {}
    room = _MOST_OF_LIST
    for text in filter(None, map(plain_text, values)):
        if len(found) == _MOST_IN_LIST or len(text) > room:
            break
        if text.casefold() not in found:
            found[text.casefold()] = text
            room -= len(text)
    return {name: list(found.values())} if found else {}


def rating_details(stars: object, percent: object = None) -> Details:
    """Return a rating: -1 rejected, 0 none, 1 to 5; Windows writes it in percent, too."""
    rating = _number(stars)
    if rating is None and (share := _number(percent)) is not None:
        rating = 1 + (share + 1) // 25 if share > 0 else share  # 1, 25, 50, 75, 99
    if rating is None or not _LEAST_RATING <= rating <= _MOST_RATING:
        return {}
    return {RATING: round(rating)}


def _number(value: object) -> float | None:
    with suppress(ValueError, TypeError, OverflowError):
        return float(value)  # pyright: ignore[reportArgumentType]
    return None


def place_details(lat: float | None, lon: float | None) -> Details:
    """Return both coordinates, or none; both zero is what devices write that do not know them."""
    if lat is None or lon is None or lat == lon == 0 or not (abs(lat) <= 90 and abs(lon) <= 180):
        return {}
    return {LAT: round(lat, _DECIMALS) + 0.0, LON: round(lon, _DECIMALS) + 0.0}  # -0.0 is 0
