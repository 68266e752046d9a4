"""What is given to the functions of this package: a query or its parts, photos, texts."""

from __future__ import annotations

import io
import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING

from aladin_index.search.results import Role
from aladin_network.errors import InputError
from aladin_network.types import Target
from aladin_service.search.job import (
    ItemQuery,
    PartsQuery,
    PhotoQuery,
    QueryPart,
    TextQuery,
)

if TYPE_CHECKING:
    from PIL.Image import Image

    from aladin_index.encode.source_items import ImageItem, TextItem
    from aladin_index.format.records import SkippedItem


@dataclass(frozen=True, kw_only=True)
class Part:
    """A part of a query of several: exactly one of `text`, `image` and `id`.

    Attributes:
        text: Words.
        image: Path of a photo's file, its bytes, or a decoded picture.
        id: Id of an item of the index.
        weight: Factor of the part's score in the sum of all parts, more than 0.
    """

    text: str | None = None
    image: str | PathLike[str] | bytes | Image | None = None
    id: str | None = None
    weight: float = 1.0


@dataclass(frozen=True, kw_only=True)
class GivenParts:
    """The parts of a query besides its words, its photo or its item; see `Index.search`."""

    all: Sequence[str | Part] = ()
    not_: Sequence[str | Part] = ()
    like: Sequence[str] = ()
    unlike: Sequence[str] = ()

    def __bool__(self) -> bool:
        """Whether there is any."""
        return bool(self.all or self.not_ or self.like or self.unlike)


def search_query(
    text: str | None,
    image: str | PathLike[str] | bytes | Image | None,
    item_id: str | None,
    parts: GivenParts,
) -> tuple[TextQuery | PhotoQuery | ItemQuery | PartsQuery, str]:
    """Return the query, and its description for people.

    Args:
        text: Words.
        image: Path of a photo's file, its bytes, or a decoded picture.
        item_id: Id of an item of the index.
        parts: Further parts; the query itself is then one that hits have, and may be missing.

    Raises:
        InputError: If not exactly one of the three is given without parts, more than one with
            them, or a part has none, several or a weight of 0 or less.
    """
    given = [each for each in (text, image, item_id) if each is not None]
    if not parts or len(given) > 1:
        return _one_query("search", text, image, item_id)
    wanted = [Part(text=text, image=image, id=item_id)] if given else []
    made: list[QueryPart] = []
    words: list[str] = []
    kinds: tuple[tuple[Role, Sequence[str | Part]], ...] = (
        ("all", [*wanted, *parts.all]),
        ("not", parts.not_),
        ("like", [Part(id=each) for each in dict.fromkeys(parts.like)]),
        ("unlike", [Part(id=each) for each in dict.fromkeys(parts.unlike)]),
    )
    for role, of_role in kinds:
        for each in of_role:
            part = Part(text=each) if isinstance(each, str) else each
            query, described = _one_query(role, part.text, part.image, part.id)
            if not part.weight > 0:
                raise InputError(f"{role}: expected a weight of more than 0, got {part.weight}")
            made.append(QueryPart(query, role, part.weight))
            words.append(described if role == "all" else f"{role} {described}")
    return PartsQuery(tuple(made)), ", ".join(words)


def _one_query(
    source: str,
    text: str | None,
    image: str | PathLike[str] | bytes | Image | None,
    item_id: str | None,
) -> tuple[TextQuery | PhotoQuery | ItemQuery, str]:
    """Return a query of one part, and its description; `source` names it in an error."""
    given = [
        name
        for name, value in (("text", text), ("image", image), ("id", item_id))
        if value is not None
    ]
    if len(given) != 1:
        raise InputError(
            f"{source}: expected exactly one of text, image and id, got "
            f"{', '.join(given) or 'none'}"
        )
    if text is not None:
        return TextQuery(text), repr(text)
    if item_id is not None:
        return ItemQuery(item_id), f"item {item_id!r}"
    if isinstance(image, bytes):
        return PhotoQuery(image), "a photo"
    if isinstance(image, str | PathLike):
        return PhotoQuery(Path(image).read_bytes(), str(image)), f"the photo {os.fspath(image)!r}"
    assert image is not None  # by the count above
    file = io.BytesIO()
    image.convert("RGB").save(file, "PNG", compress_level=1)
    return PhotoQuery(file.getvalue()), "a photo"


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
