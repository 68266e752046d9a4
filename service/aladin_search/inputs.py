"""What is given to the functions of this package: a query, photos, texts."""

from __future__ import annotations

import io
import os
from collections.abc import Iterator, Sequence
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING

from aladin_index.search.boxes import check_box
from aladin_network.errors import InputError
from aladin_network.types import Target
from aladin_service.search.job import ItemQuery, PhotoQuery, PlainQuery, TextQuery

if TYPE_CHECKING:
    from PIL.Image import Image

    from aladin_index.encode.source_items import ImageItem, TextItem
    from aladin_index.format.records import SkippedItem


def query_of(
    text: str | None,
    image: str | PathLike[str] | bytes | Image | None,
    item_id: str | None,
    box: Sequence[float] | None = None,
) -> tuple[PlainQuery, str]:
    """Return the query, and its description for people.

    Args:
        text: Words.
        image: Path of a photo's file, its bytes, or a decoded picture.
        item_id: Id of an item of the index.
        box: Part of the photo to search for, in fractions of its size, or None for all of it.

    Raises:
        InputError: If not exactly one of the first three is given, the box is none, or it is given
            with a text.
    """
    given = [
        name
        for name, value in (("text", text), ("image", image), ("id", item_id))
        if value is not None
    ]
    if len(given) != 1:
        raise InputError(
            f"search: expected exactly one of text, image and id, got {', '.join(given) or 'none'}"
        )
    part = None if box is None else check_box(box)
    if text is not None:
        if part is not None:
            raise InputError("box: expected a photo beside it, by image or id, got text")
        return TextQuery(text), repr(text)
    of = "" if part is None else "a part of "
    if item_id is not None:
        return ItemQuery(item_id, box=part), f"{of}item {item_id!r}"
    if isinstance(image, bytes):
        return PhotoQuery(image, box=part), f"{of}a photo"
    if isinstance(image, str | PathLike):
        data = Path(image).read_bytes()
        return PhotoQuery(data, str(image), part), f"{of}the photo {os.fspath(image)!r}"
    assert image is not None  # by the count above
    file = io.BytesIO()
    image.convert("RGB").save(file, "PNG", compress_level=1)
    return PhotoQuery(file.getvalue(), box=part), f"{of}a photo"


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
