"""What is given to the functions of this package: a query or its terms, photos, texts."""

from __future__ import annotations

import os
from collections.abc import Iterator
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, get_args

from aladin_index.search.request import SearchRequest, SearchTerm
from aladin_network.errors import InputError
from aladin_network.types import Target

if TYPE_CHECKING:
    from aladin_index.encode.source_items import ImageItem, TextItem
    from aladin_index.format.skipped import SkippedItem


def check_literals(**given: tuple[object, object]) -> None:
    """Check values that have to be one of a few texts.

    Args:
        **given: Each value, and the literal type that it has to be of.

    Raises:
        InputError: If a value is another.
    """
    for name, (value, literal) in given.items():
        allowed = get_args(literal)
        if value not in allowed:
            expected = ", ".join(map(repr, allowed))
            raise InputError(f"{name}: expected one of {expected}, got {value!r:.100}")


def described(request: SearchRequest) -> str:
    """Describe what is searched for in words for people."""
    if not request.has_terms:
        return _described(request)
    return ", ".join(
        _described(term) if role == "all" else f"{role} {_described(term)}"
        for role, _, term in request.terms()
    )


def _described(asked: SearchRequest | SearchTerm) -> str:
    if asked.text is not None:
        return repr(asked.text)
    of = "" if asked.box is None else "a part of "
    if asked.id is not None:
        return f"{of}item {asked.id!r}"
    if isinstance(asked.image, str | PathLike):
        return f"{of}the photo {os.fspath(asked.image)!r}"
    return f"{of}a photo"


def photos_of(source: Path, split: str | None) -> Iterator[ImageItem | SkippedItem]:
    """Read photos in any format of `aladin index build`, of one split or of all.

    Raises:
        InputError: If the data cannot be used.
    """
    from aladin_service.item_sources import image_items, photo_places

    return image_items(source, split, places=photo_places(source, None))


def texts_of(source: Path, split: str | None) -> Iterator[TextItem | SkippedItem]:
    """Read texts, or the captions of a data set; as `photos_of`."""
    from aladin_service.item_sources import text_items

    return text_items(source, split)


def items_of(
    target: Target, source: Path, split: str | None
) -> Iterator[ImageItem | TextItem | SkippedItem]:
    """Read the items of a collection; as `photos_of`."""
    return texts_of(source, split) if target == "texts" else photos_of(source, split)
