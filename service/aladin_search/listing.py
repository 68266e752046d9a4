"""What an index holds without a query: its items, skipped files, and fields to filter by."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

from aladin_index.facts import FieldValue, ValueRange
from aladin_network.types import Target

if TYPE_CHECKING:
    from aladin_index.format.manifest import Manifest
    from aladin_index.search.collection import SearchBackend

_PAGE = 200
Order = Literal["desc", "asc"]


class Item(NamedTuple):
    """An item as the user described it.

    Attributes:
        id: Id of the item.
        uri: Path or URL of a photo as given to the build, or None for a text.
        text: The text itself, a photo's first caption, or None.
        metadata: Metadata by field.
        size_px: Width and height of a photo, upright, or None for a text.
        stack: Ids of the photos that it stands for, itself first, if several are one item.
    """

    id: str
    uri: str | None
    text: str | None
    metadata: dict[str, Any]
    size_px: tuple[int, int] | None
    stack: list[str] | None = None


@dataclass(frozen=True, kw_only=True)
class Field(ValueRange):
    """The values of one kind in a metadata field, by the smallest and the largest.

    Attributes:
        name: Name of the field.
        counts: Number of items by value, the most frequent first, or None if there are more than
            50 values.
    """

    name: str
    counts: dict[FieldValue, int] | None


def every_item(
    index: SearchBackend,
    target: Target,
    sort: str | None,
    order: Order,
    filter: Mapping[str, Any] | None,
    stack: bool,
) -> Iterator[Item]:
    """List all items of a collection; see `Index.items`.

    Raises:
        NoSuchTargetError: If the index has no such collection.
        InputError: If the index is in a vector database, the filter is wrong, or the field is not
            indexed for filters.
    """
    from aladin_index.items.filters import parse_filter
    from aladin_index.search.collection import ListOrder

    parsed = parse_filter(dict(filter)) if filter else None
    wanted = ListOrder(sort, descending=order == "desc", stack=stack)
    after = None
    while True:
        page = index.collection(target, parsed).list_items(wanted, after, _PAGE)
        for item, of_item in zip(page.items, page.stacks, strict=True):
            ids = None if of_item is None else of_item.ids
            yield Item(item.id, item.uri, item.text, item.metadata, item.size_px, ids)
        if page.is_last:
            return
        after = page.items[-1].id


def fields_of(index: SearchBackend, target: Target) -> list[Field]:
    """Describe the fields of a collection; see `Index.fields`.

    Raises:
        NoSuchTargetError: If the index has no such collection.
        InputError: If the index is in a vector database.
    """

    return [
        Field(
            name=name,
            kind=values.kind,
            least=values.as_written(values.least),
            greatest=values.as_written(values.greatest),
            counts=values.most_frequent(),
        )
        for name, of_name in index.collection(target).list_fields().items()
        for values in of_name
    ]


def skipped_files(folder: Path, manifest: Manifest) -> dict[str, str]:
    """Return why the build skipped files or items, by their ids; see `Index.skipped`."""
    from aladin_index.format.layout import generation_folder
    from aladin_index.format.skipped import read_skipped

    generation = generation_folder(folder, manifest.generation)
    return {
        item.id: item.reason
        for target in manifest.targets
        if (generation / target).is_dir()
        for item in read_skipped(generation / target)
    }
