"""What the columns of a table, or the fields of a ``.json`` beside a photo, say of it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple, cast

from aladin.columns import CAPTIONS, ID, SPLIT, STATUS, SUCCESS, first_of, metadata_of
from training.data.fields import Place


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
    return Description(
        id=None if identity is None else _word(row[identity], identity, place),
        captions=() if captions is None else _captions(row[captions], captions, place),
        split=_word(row[SPLIT], SPLIT, place) if SPLIT in present else None,
        metadata=metadata_of(row, [captions, identity, photo_column, SPLIT]),
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
