"""What columns and JSON fields mean, by the names that other projects give them.

The same names hold in the header of a CSV file, in parquet and in the ``.json`` beside a photo:
open_clip's ``filepath`` and ``title``, img2dataset's and clip-retrieval's ``image_path``,
``caption``, ``key``, ``status`` and ``url``.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from datetime import date, datetime, time
from decimal import Decimal
from typing import Any, NamedTuple, cast

from training.data.fields import Place

# Of several, the first that is there counts; the others are metadata.
PHOTO = ("image", "image_path", "filepath", "path", "file_name")
CAPTIONS = ("captions", "caption", "title", "text")
ID = ("id", "key")
SPLIT = "split"
# Of a download that failed, there is no photo.
STATUS, SUCCESS = "status", "success"
# The camera's notes say where and when a photo was taken; hits show metadata to everybody.
_NOT_METADATA = frozenset({STATUS, "error_message", "exif"})


class Description(NamedTuple):
    """What a row says of its photo, or of its text.

    Attributes:
        id: None where there is no such column.
        captions: none, one or several.
        split: None if it does not say.
        metadata: everything else.
    """

    id: str | None
    captions: tuple[str, ...]
    split: str | None
    metadata: dict[str, Any]


def first_of(names: tuple[str, ...], present: Iterable[str]) -> str | None:
    """Return the first of some names that is present."""
    found = set(present)
    return next((name for name in names if name in found), None)


def has_failed(row: Mapping[str, Any]) -> bool:
    """Whether img2dataset could not download the photo of a row."""
    return row.get(STATUS, SUCCESS) not in (None, SUCCESS)


def describe(row: Mapping[str, Any], place: Place, photo_column: str | None = None) -> Description:
    """Tell id, captions, split and metadata of a row apart.

    Args:
        row: values by column.
        place: named in errors.
        photo_column: that names the photo; no metadata.

    Raises:
        DataError: a value is not of the kind that its column has.
    """
    present = [name for name, value in row.items() if value is not None]
    captions, identity = first_of(CAPTIONS, present), first_of(ID, present)
    taken = {captions, identity, photo_column, SPLIT}
    metadata: dict[str, Any] = {}
    for name, value in row.items():
        plain = None if name in taken or name in _NOT_METADATA else _plain(value)
        if plain is not None:
            metadata[name] = plain
    return Description(
        id=None if identity is None else _word(row[identity], identity, place),
        captions=() if captions is None else _captions(row[captions], captions, place),
        split=_word(row[SPLIT], SPLIT, place) if SPLIT in present else None,
        metadata=metadata,
    )


def _word(value: object, name: str, place: Place) -> str:
    """Return an id or a split; tables hold ids as numbers, too."""
    if isinstance(value, bool) or not isinstance(value, str | int):
        raise place.error(f"{name}: expected a text, got {type(value).__name__}")
    word = str(value)
    if not word.strip():
        raise place.error(f"{name}: is blank")
    return word


def _captions(value: object, name: str, place: Place) -> tuple[str, ...]:
    values = cast(list[object], value) if isinstance(value, list) else [value]
    captions: list[str] = []
    for caption in values:
        if not isinstance(caption, str):
            kind = type(caption).__name__
            raise place.error(f"{name}: expected a text or a list of texts, got {kind}")
        captions.append(caption.strip())
    return tuple(caption for caption in captions if caption)


def _plain(value: object) -> Any:
    """Return a value as JSON has it; None for what JSON has not."""
    if isinstance(value, str | bool | int):
        return value
    if isinstance(value, float | Decimal):
        return float(value) if math.isfinite(value) else None
    if isinstance(value, datetime | date | time):
        return value.isoformat()
    if isinstance(value, Mapping):
        fields = cast(Mapping[str, object], value)
        return {name: _plain(each) for name, each in fields.items()}
    if isinstance(value, list | tuple):
        return [_plain(each) for each in cast(list[object], value)]
    return None
