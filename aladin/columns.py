"""Names that open_clip, img2dataset and clip-retrieval give to what a table says of photos."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from datetime import date, datetime, time
from decimal import Decimal
from typing import Any, cast

# Of several, the first that is there counts; the others are metadata.
PHOTO = ("image", "image_path", "filepath", "path", "file_name")
CAPTIONS = ("captions", "caption", "title", "text")
ID = ("id", "key")
SPLIT = "split"
# img2dataset's: of a download that failed there is no photo.
STATUS, SUCCESS = "status", "success"
# The name of a column in which pandas keeps its own row labels.
_PANDAS_INDEX = "__index_level_"
# The camera's notes say where and when a photo was taken; hits show metadata to everybody.
NOT_METADATA = frozenset({STATUS, "error_message", "exif"})


def first_of(names: Sequence[str], present: Iterable[str]) -> str | None:
    """Return the first of some names that is present."""
    found = set(present)
    return next((name for name in names if name in found), None)


def metadata_of(row: Mapping[str, Any], taken: Iterable[str | None]) -> dict[str, Any]:
    """Return what a row says beyond the columns that have a meaning of their own.

    Args:
        row: values by column.
        taken: columns that are something else.

    Returns:
        JSON values: dates and times in ISO 8601; without bytes, NaN, what is empty and what pandas
        adds.
    """
    others = NOT_METADATA.union(name for name in taken if name is not None)
    plain = {
        name: _plain(value)
        for name, value in row.items()
        if name not in others and not name.startswith(_PANDAS_INDEX)
    }
    return {name: value for name, value in plain.items() if value is not None}


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
