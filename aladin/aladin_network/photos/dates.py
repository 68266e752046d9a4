"""When a photo was taken: from texts of metadata, from the names of files, from their times."""

from __future__ import annotations

import re
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from typing import NamedTuple

_FIRST_PHOTO = datetime(1826, 1, 1)
_OTHER_ZONES = timedelta(days=1)  # by which the time of day elsewhere is at most ahead
_DAY_CHARACTERS = 10

# EXIF's "2024:07:31 18:05:09", which some devices write with other separators, and XMP's ISO 8601.
_TIME = re.compile(
    r"(\d{4})[:/.-](\d\d)[:/.-](\d\d)"
    r"(?:[ T](\d\d):(\d\d)(?::(\d\d)(?:[.,]\d*)?)? *(Z|[+-]\d\d:?\d\d)?)?"
)
_OFFSET = re.compile(r"([+-])(\d\d):?(\d\d)")
_MOST_OFFSET = timedelta(hours=14)
_QUARTER = timedelta(minutes=15)

# A day in the name of a file: IMG_20220714, 2022-07-14, 2022.07.14, not a part of a longer number.
_NAMED_DAY = re.compile(r"(?<!\d)((?:19|20)\d\d)([-._]?)(\d\d)\2(\d\d)(?!\d)")
# And a time after it: _101112, -10-11-12, 10.11.12, "at 10.11.12 PM", "um 10.11.12", T101112.
_NAMED_TIME = re.compile(
    r"(?:[-_ T.]|, | (?:at|um|à|a las|om|kl\.) )(?=\d{6}(?:\d{3})?(?!\d)|\d\d?\D)"
    r"(\d\d?)([-._:h ]?)(\d\d)\2(\d\d)(?:\d{3})?(?!\d)(?:\s?([AP])M\b)?",
    re.IGNORECASE,
)
# Burst of Android, with no sign between day and time.
_CLOSED = re.compile(r"(?<!\d)((?:19|20)\d{6})(\d{6})(?=(?:\d{3})?(?!\d))")
# Milliseconds since 1970: Facebook, WeChat, Snapchat and others.
_MILLISECONDS = re.compile(r"^(?:FB_IMG_|mmexport|IMG_)?(1[0-9]{12})(?!\d)")
# Google's camera names photos by the time in UTC.
_IN_UTC = re.compile(r"PXL_", re.IGNORECASE)
_NOON = 12
# Sources of dates, beside those of metadata: exif, iptc, xmp, takeout.
BY_NAME, BY_FILE = "name", "file"
# Archives without times, and clocks without a battery, begin with 1970.
_NO_TIME_S = 86_400


class Moment(NamedTuple):
    """When a photo was taken.

    Attributes:
        text: Local time ``2024-07-31T18:05:09``, or the day ``2024-07-31`` if only that is known.
            Texts of this form are ordered as the times are.
        source: Where it comes from: exif, iptc, xmp, takeout, `BY_NAME` or `BY_FILE`.
        offset: Offset of the local time from UTC, ``+02:00``, or None if unknown.
    """

    text: str
    source: str
    offset: str | None = None

    @property
    def has_time(self) -> bool:
        """Whether the time of day is known."""
        return len(self.text) > _DAY_CHARACTERS


def moment_of(text: str, source: str, offset: str = "") -> Moment | None:
    """Return the time that a text of metadata names, or None if it is none.

    Args:
        text: Time in the form of EXIF or of ISO 8601.
        source: See `Moment`.
        offset: Offset from UTC that is written elsewhere.
    """
    match = _TIME.match(text)
    if match is None:
        return None
    *parts, zone = match.groups()
    return _moment(parts, source, offset_of(zone or offset))


def offset_of(text: str) -> str | None:
    """Return an offset from UTC as ``+02:00``, or None if the text is none."""
    match = _OFFSET.match("+00:00" if text == "Z" else text)
    if match is None:
        return None
    sign, hours, minutes = match.groups()
    is_one = timedelta(hours=int(hours), minutes=int(minutes)) <= _MOST_OFFSET
    return f"{sign}{hours}:{minutes}" if is_one else None


def zone_between(local: str, utc: str, within_s: int = 2) -> str | None:
    """Return the offset of a local time from the same moment in UTC; None if they are not the same.

    Zones differ from UTC by quarters of an hour; two clocks by at most `within_s` seconds.
    """
    with suppress(ValueError):
        difference = datetime.fromisoformat(local) - datetime.fromisoformat(utc)
        quarters = round(difference / _QUARTER)
        is_same = abs(difference - quarters * _QUARTER) <= timedelta(seconds=within_s)
        if is_same and abs(difference) <= _MOST_OFFSET and len(local) > _DAY_CHARACTERS:
            hours, minutes = divmod(abs(quarters) * 15, 60)
            return f"{'-' if quarters < 0 else '+'}{hours:02d}:{minutes:02d}"
    return None


def utc_moment(seconds: int, source: str) -> Moment | None:
    """Return the time so many seconds after 1970, in UTC; None if there were no photos then."""
    try:
        moment = datetime(1970, 1, 1, tzinfo=UTC) + timedelta(seconds=seconds)
    except (OverflowError, ValueError):
        return None
    return _valid(moment.replace(tzinfo=None), source, "+00:00")


def moment_of_name(name: str) -> Moment | None:
    """Return the day, and the time of day if it is there, in the name of a photo's file."""
    stem = name.rpartition(".")[0] or name
    milliseconds = _MILLISECONDS.search(stem)
    if milliseconds is not None:
        return utc_moment(int(milliseconds.group(1)) // 1000, BY_NAME)
    stem = _CLOSED.sub(r"\1_\2", stem)
    for day in _NAMED_DAY.finditer(stem):
        year, _, month, date = day.groups()
        time = _NAMED_TIME.match(stem, day.end())
        clock: list[str | None] = [None] * 3 if time is None else _clock(time)
        offset = "+00:00" if time is not None and _IN_UTC.match(stem) else None
        found = _moment([year, month, date, *clock], BY_NAME, offset) or _moment(
            [year, month, date, None, None, None], BY_NAME, None
        )
        if found is not None:
            return found
    return None


def _clock(match: re.Match[str]) -> list[str | None]:
    """Return hour, minute and second of a name, of 24 hours."""
    hour, _, minute, second, half = match.groups()
    if half is not None:
        hour = str(int(hour) % _NOON + (_NOON if half.upper() == "P" else 0))
    return [hour, minute, second]


def moment_of_file(mtime_ns: int) -> Moment | None:
    """Return the time of a file's last change, by the clock of this machine."""
    if mtime_ns // 10**9 < _NO_TIME_S:
        return None
    with suppress(OverflowError, ValueError, OSError):
        moment = datetime.fromtimestamp(mtime_ns // 10**9).astimezone()
        return _valid(moment.replace(tzinfo=None), BY_FILE, offset_of(moment.strftime("%z")))
    return None


def _moment(parts: list[str | None], source: str, offset: str | None) -> Moment | None:
    """Return a time by its parts, year to second; the last three may be missing."""
    with suppress(ValueError):  # such as "0000:00:00 00:00:00" of a camera without a clock
        numbers = [int(part) for part in parts if part is not None]
        year, month, day, *clock = numbers
        hour, minute, second = (*clock, 0, 0, 0)[:3]
        moment = _valid(datetime(year, month, day, hour, minute, second), source, offset)
        if moment is not None and not clock:
            return Moment(moment.text[:_DAY_CHARACTERS], source)
        return moment
    return None


def _valid(moment: datetime, source: str, offset: str | None) -> Moment | None:
    # A clock that is wrong would put the photo before or behind all others.
    if not _FIRST_PHOTO <= moment <= datetime.now() + _OTHER_ZONES:
        return None
    return Moment(moment.replace(microsecond=0).isoformat(), source, offset)
