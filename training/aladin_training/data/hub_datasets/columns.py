"""The columns of a data set: its photos, captions and ids, chosen by type and name."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow as pa

from aladin_network.errors import DataError
from aladin_network.photos.files import CAPTIONS, ID, PHOTO, first_of

# Names in popular data sets, beside those of all tables.
_CAPTIONS = (*CAPTIONS, "sentences", "caption_text", "description", "sentence")
_NUMBERED = re.compile(r"(captions?|sentences?|texts?|descriptions?)_?\d+")


class Columns(NamedTuple):
    """Columns by meaning.

    Attributes:
        names: All columns.
        photo: Column of photos, or None for texts without photos.
        captions: Columns of captions, each of a text or a list of texts; may be none.
        id: Column of ids, or None.
    """

    names: tuple[str, ...]
    photo: str | None
    captions: tuple[str, ...]
    id: str | None

    @property
    def listed(self) -> str:
        """Names of all columns, for error messages."""
        return ", ".join(map(repr, self.names))


def holds_bytes(kind: Any) -> bool:
    """Tell whether a column holds bytes, or structs with bytes, as photos are stored."""
    if pa.types.is_struct(kind):
        return any(part.name == "bytes" and holds_bytes(part.type) for part in kind)
    return pa.types.is_binary(kind) or pa.types.is_large_binary(kind)


def _holds_text(kind: Any) -> bool:
    return pa.types.is_string(kind) or pa.types.is_large_string(kind)


def _holds_captions(kind: Any) -> bool:
    is_list = pa.types.is_list(kind) or pa.types.is_large_list(kind)
    return _holds_text(kind.value_type) if is_list else _holds_text(kind)


def choose_columns(
    source: Path, schema: Any, features: Mapping[str, Any], options: Mapping[str, str]
) -> Columns:
    """Choose the columns of photos, captions and ids.

    The photos are in the column that is named, in the only one of the feature ``Image``, or in the
    first column with a name that tables use. The captions are in the columns that are named, in
    the first one with a usual name, or in all with a usual name and a number (``caption_0``).

    Args:
        source: Source, named in errors.
        schema: Columns and their types.
        features: Features of `datasets` by column.
        options: Columns that were named: ``image``, ``captions`` (joined by ``+``), ``id``.

    Raises:
        DataError: If a named column is missing or of another type, there are several candidates,
            or there is neither a column of photos nor one of texts.
    """
    types: dict[str, Any] = dict(zip(schema.names, schema.types, strict=True))
    listed = "its columns are " + ", ".join(map(repr, types))
    named = options.get("captions")
    captions = _captions(types) if named is None else tuple(named.split("+"))
    identity = options.get("id") or first_of(ID, types)
    given = [*filter(None, [options.get("image"), options.get("id")]), *captions]
    for name in given:
        if name not in types:
            raise DataError(source, None, f"no column {name!r}: {listed}")
    for name in captions:
        if not _holds_captions(types[name]):
            reason = f"column {name!r}: expected texts or lists of texts, got {types[name]}"
            raise DataError(source, None, f"{reason}; {listed}")
    photo = options.get("image") or _photo(source, types, features, listed)
    if photo is not None and not (holds_bytes(types[photo]) or _holds_text(types[photo])):
        reason = f"column {photo!r}: expected photos, bytes or paths, got {types[photo]}"
        raise DataError(source, None, f"{reason}; {listed}")
    if photo is None and not captions:
        reason = "expected a column of photos or of texts, name it with image= or captions="
        raise DataError(source, None, f"{reason}; {listed}")
    return Columns(tuple(types), photo, captions, identity)


def _photo(
    source: Path, types: Mapping[str, Any], features: Mapping[str, Any], listed: str
) -> str | None:
    images = [name for name in types if type(features.get(name)).__name__ == "Image"]
    if len(images) == 1:
        return images[0]
    if images:
        usual = first_of(PHOTO, images)
        if usual is None:
            reason = f"{len(images)} columns of photos, choose one with image=COLUMN"
            raise DataError(source, None, f"{reason}; {listed}")
        return usual
    usable = [name for name, kind in types.items() if holds_bytes(kind) or _holds_text(kind)]
    return first_of(PHOTO, usable)


def _captions(types: Mapping[str, Any]) -> tuple[str, ...]:
    usable = [name for name, kind in types.items() if _holds_captions(kind)]
    usual = first_of(_CAPTIONS, usable)
    return (usual,) if usual is not None else tuple(_numbered(usable))


def _numbered(names: Iterable[str]) -> list[str]:
    return [name for name in names if _NUMBERED.fullmatch(name)]
