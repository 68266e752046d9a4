"""What is given to the functions of this package: a query or its parts, photos, texts."""

from __future__ import annotations

import io
import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, get_args

from aladin_index.search.results import Box, Role
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


@dataclass(frozen=True, kw_only=True)
class Part:
    """A part of a query of several, or a query: exactly one of `text`, `image` and `id`.

    Attributes:
        text: Words.
        image: Path of a photo's file, its bytes, or a decoded picture.
        id: Id of an item of the index.
        box: Part of the photo to search for, in fractions of its size; None for all of it.
        weight: Factor of the part's score in the sum of all parts, more than 0.
    """

    text: str | None = None
    image: str | PathLike[str] | bytes | Image | None = None
    id: str | None = None
    box: Sequence[float] | None = None
    weight: float = 1.0


@dataclass(frozen=True, kw_only=True)
class GivenParts:
    """The parts of a query besides its words, its photo or its item; see `Index.search`."""

    all: Sequence[str | Part] = ()
    not_: Sequence[str | Part] = ()
    like: Sequence[str] = ()

    def __bool__(self) -> bool:
        """Whether there is any."""
        return bool(self.all or self.not_ or self.like)


def search_query(
    query: Part, parts: GivenParts
) -> tuple[TextQuery | PhotoQuery | ItemQuery | PartsQuery, str]:
    """Return the query, and its description for people.

    Args:
        query: Words, photo or item, at its usual weight.
        parts: Further parts; the query itself is then one that hits have, and may be missing.

    Raises:
        InputError: If `query` is not exactly one of text, image and id without parts, or more than
            one with them, a part is none or several or has a weight of 0 or less, a box is none or
            has no photo.
    """
    given = [each for each in (query.text, query.image, query.id) if each is not None]
    if not parts or len(given) > 1:
        return _one_query("search", query)
    wanted = [query] if given or query.box is not None else []
    made: list[QueryPart] = []
    words: list[str] = []
    kinds: tuple[tuple[Role, Sequence[str | Part]], ...] = (
        ("all", [*wanted, *parts.all]),
        ("not", parts.not_),
        ("like", [Part(id=each) for each in dict.fromkeys(parts.like)]),
    )
    for role, of_role in kinds:
        for each in of_role:
            part = Part(text=each) if isinstance(each, str) else each
            asked, described = _one_query(role, part)
            if not part.weight > 0:
                raise InputError(f"{role}: expected a weight of more than 0, got {part.weight}")
            made.append(QueryPart(asked, role, part.weight))
            words.append(described if role == "all" else f"{role} {described}")
    return PartsQuery(tuple(made)), ", ".join(words)


def _one_query(source: str, part: Part) -> tuple[TextQuery | PhotoQuery | ItemQuery, str]:
    """Return a query of one part, and its description; `source` names it in an error."""
    kinds = {"text": part.text, "image": part.image, "id": part.id}
    given = [name for name, value in kinds.items() if value is not None]
    if len(given) != 1:
        raise InputError(
            f"{source}: expected exactly one of text, image and id, got "
            f"{', '.join(given) or 'none'}"
        )
    box: Box | None = None
    if part.box is not None:
        from aladin_index.search.boxes import check_box  # imports numpy

        box = check_box(part.box)
    if part.text is not None:
        if box is not None:
            raise InputError("box: expected a photo beside it, by image or id, got text")
        return TextQuery(part.text), repr(part.text)
    of = "" if box is None else "a part of "
    if part.id is not None:
        return ItemQuery(part.id, box=box), f"{of}item {part.id!r}"
    image = part.image
    if isinstance(image, bytes):
        return PhotoQuery(image, box=box), f"{of}a photo"
    if isinstance(image, str | PathLike):
        data = Path(image).read_bytes()
        return PhotoQuery(data, str(image), box), f"{of}the photo {os.fspath(image)!r}"
    assert image is not None  # by the count above
    file = io.BytesIO()
    image.convert("RGB").save(file, "PNG", compress_level=1)
    return PhotoQuery(file.getvalue(), box=box), f"{of}a photo"


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
