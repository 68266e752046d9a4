"""The doors of an index: what each can ask, wherever the index is."""

from __future__ import annotations

import io
import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

from aladin_index.search.request import SearchPart, SearchRequest, check_box
from aladin_service.search.job import (
    ItemQuery,
    PartsQuery,
    PhotoQuery,
    Query,
    QueryPart,
    RegionsQuery,
    TextQuery,
)

if TYPE_CHECKING:
    from aladin_index.search.request import Picture


def query_of(request: SearchRequest) -> Query:
    """Return what a checked request searches for, with the bytes of its pictures."""
    if request.text is not None:
        return TextQuery(request.text)
    if request.has_parts:
        return PartsQuery(
            tuple(
                QueryPart(_plain_query(each.part, f"{each.source}."), each.role, each.part.weight)
                for each in request.terms()
            )
        )
    if request.regions is not None:
        regions, name = picture_bytes(request.regions, "regions")
        box = None if request.box is None else check_box(request.box)
        return RegionsQuery(regions, source=name, box=box)
    return _plain_query(request)


def _plain_query(
    asked: SearchRequest | SearchPart, source: str = ""
) -> TextQuery | PhotoQuery | ItemQuery:
    if asked.text is not None:
        return TextQuery(asked.text)
    box = None if asked.box is None else check_box(asked.box)
    if asked.id is not None:
        return ItemQuery(asked.id, box=box)
    assert asked.image is not None  # or the request was not checked
    data, name = picture_bytes(asked.image, f"{source}image")
    return PhotoQuery(data, name, box)


def picture_bytes(picture: Picture, source: str) -> tuple[bytes, str]:
    """Return the bytes of a picture's file, and its name in errors: `source`, or its path.

    Raises:
        OSError: If the file cannot be read.
    """
    if isinstance(picture, bytes):
        return picture, source
    if isinstance(picture, str | os.PathLike):
        return Path(picture).read_bytes(), os.fspath(picture)
    decoded: Any = picture
    if hasattr(picture, "read"):
        return decoded.read(), source
    file = io.BytesIO()
    decoded.convert("RGB").save(file, "PNG", compress_level=1)
    return file.getvalue(), source
