"""What other programs have written beside a photo: ``.xmp``, and the files of Google Takeout.

They tell of a photo and never identify it. Takeout names its file after the photo's title, cut to
46 characters with an ending that was added later, and with the number of one of several photos of
one name at the end:

    IMG_1.jpg           IMG_1.jpg.json, IMG_1.jpg.supplemental-metadata.json, IMG_1.json
    IMG_1(2).jpg        IMG_1.jpg(2).json, IMG_1.jpg.supplemental-metadata(2).json
    IMG_1-edited.jpg    that of IMG_1.jpg, which is another photo
    a name of 40 signs  NAME.jpg.supp.json

The photo and the video of one moment share the file of either.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from pathlib import Path, PurePosixPath
from typing import Any, cast

from aladin_network.errors import DataError
from aladin_network.photos.dates import utc_moment
from aladin_network.photos.fields import (
    DESCRIPTION,
    FAVOURITE,
    PEOPLE,
    Details,
    Told,
    combined,
    list_details,
    over,
    place_details,
    text_details,
)
from aladin_network.photos.names import EDITED
from aladin_network.photos.xmp import MOST_XMP_BYTES, xmp_told
from aladin_network.types import MAX_STORED_BYTES
from aladin_training.data.fields import Place, parse_json, readable
from aladin_training.data.samples import TAKEN, check_side_file

XMP = ".xmp"
_ENDING = ".supplemental-metadata"
# Names are cut to 46 characters; where a character has several bytes, perhaps to fewer.
_MOST_IN_NAME, _LEAST_IN_NAME = 46, 40
_NUMBER = re.compile(r"(.+)(\(\d+\))", re.DOTALL)
# Of the photo and the video of one moment, and of photos that were converted.
_PAIRED = (".HEIC", ".heic", ".JPG", ".jpg", ".jpeg", ".MP4", ".mp4", ".MOV", ".mov", ".MP")
_NO_LETTER = re.compile(r"\W")


def sidecar_details(
    photo: Path, has: Callable[[str], bool], on_fault: Callable[[Path, DataError], None]
) -> Details:
    """Return what the files beside a photo tell.

    Args:
        photo: File of the photo.
        has: Tells whether there is a file of a name beside it.
        on_fault: Called for each of them that cannot be used.
    """
    found = Details()
    # The whole name is more certain than that without the suffix.
    for name in (base + end for base in (photo.name, photo.stem) for end in (XMP, XMP.upper())):
        if has(name):
            file = photo.with_name(name)
            try:
                found = over(found, _xmp_details(file))
            except DataError as error:
                on_fault(file, error)
    for name, is_cut in _takeout_names(photo.name):
        if has(name):
            file = photo.with_name(name)
            try:
                told = parse_json(side_content(file), Place(file))
            except DataError as error:
                on_fault(file, error)
                continue
            if _is_of(told, photo.name if is_cut else None):
                return over(found, takeout_details(cast("dict[str, Any]", told)))
    return found


def side_content(file: Path, most: int = MAX_STORED_BYTES) -> bytes:
    """Read a file beside a photo, unless it is too large to be about one photo."""
    with readable(file):
        check_side_file(file.stat().st_size, Place(file), most)
        return file.read_bytes()


def _xmp_details(file: Path) -> Details:
    try:
        told = xmp_told(side_content(file, MOST_XMP_BYTES))
    except ValueError as error:
        raise Place(file).error(str(error)) from None
    # When a copy was digitised says less than the photo itself.
    taken = told.moments.get("taken")
    return combined([Told(told.details, {} if taken is None else {"taken": taken})])


def takeout_details(told: Mapping[str, Any]) -> Details:
    """Return what a file of Google Takeout tells; its title is the name of a file, and none."""

    def member(name: str, of: Mapping[str, Any] = told) -> Mapping[str, Any]:
        value = of.get(name)
        return cast("Mapping[str, Any]", value) if isinstance(value, dict) else {}

    people = told.get("people")
    details = {
        **text_details(DESCRIPTION, [told.get("description")]),
        **list_details(
            PEOPLE,
            (
                cast("Mapping[str, Any]", each).get("name")
                for each in cast("list[object]", people if isinstance(people, list) else [])
                if isinstance(each, dict)
            ),
        ),
        **_place(member("geoDataExif")),
        **_place(member("geoData")),
    }
    if told.get("favorited") is True:
        details[FAVOURITE] = True
    try:
        moment = utc_moment(int(member(TAKEN).get("timestamp", "")), "takeout")
    except (ValueError, TypeError, OverflowError):
        moment = None
    return combined([Told(details, {} if moment is None else {"taken": moment})])


def _place(told: Mapping[str, Any]) -> Details:
    lat, lon = told.get("latitude"), told.get("longitude")
    if isinstance(lat, (int, float)) and isinstance(lon, (int, float)):
        with suppress(OverflowError):
            return place_details(float(lat), float(lon))
    return {}


def _takeout_names(photo: str) -> Iterator[tuple[str, bool]]:
    """Yield the names that Takeout's file of a photo may have, and whether the title is cut."""
    for title, number, is_exact in _titles(photo):
        whole, size = title + _ENDING, len(title.encode("utf-8", "surrogateescape"))
        lengths = range(len(whole), 0, -1)
        if is_exact:
            lengths = (len(whole), _MOST_IN_NAME, len(title))
        for length in lengths:
            name = whole[:length]
            is_cut = length < len(title)
            if is_cut and (
                size <= _MOST_IN_NAME
                or len(name.encode("utf-8", "surrogateescape")) < _LEAST_IN_NAME
            ):
                break
            yield f"{name}{number}.json", is_cut


def _titles(photo: str) -> Iterator[tuple[str, str, bool]]:
    """Yield possible titles of a photo with its number; the last field is for rare ones."""
    stem, suffix = _split(photo)
    yield photo, "", False
    base, number = _numbered(stem)
    if number:
        yield base + suffix, number, False
    original = EDITED.sub("", base)
    if original != base:
        yield original + suffix, number, False
    for other in ("", *_PAIRED):
        if other != suffix:
            yield original + other, number, True


def _split(name: str) -> tuple[str, str]:
    path = PurePosixPath(name)
    return path.stem, path.suffix


def _numbered(stem: str) -> tuple[str, str]:
    """Split the number off that one of several photos of one name has: ``IMG_1``, ``(2)``."""
    match = _NUMBER.fullmatch(stem)
    return (stem, "") if match is None else (match[1], match[2])


def _is_of(told: object, photo: str | None) -> bool:
    """Tell whether this is a file of Takeout, about a photo of this name if it is given."""
    if not isinstance(told, dict) or TAKEN not in told:
        return False
    if photo is None:
        return True
    title = cast("dict[str, Any]", told).get("title")
    named = EDITED.sub("", _numbered(_split(photo)[0])[0])
    # Characters that no file name can have are replaced.
    plain = (_NO_LETTER.sub("_", each) for each in (_split(str(title))[0], named))
    return next(plain).startswith(next(plain))
