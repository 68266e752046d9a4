"""Requests that add new items, one by one or many in requests of bounded size."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from aladin_network.errors import InputError
from aladin_network.types import OnDuplicate, Target
from aladin_service.client.calls import Call, content_body, form_body, read_as
from aladin_service.client.connection import Again
from aladin_service.client.pictures import (
    PictureSource,
    can_be_sent_again,
    given_files,
    json_list_chunks,
    picture_bytes,
)
from aladin_service.search.answers import Added


@dataclass(frozen=True)
class NewPhoto:
    """A picture to add as an item: `image`, `regions`, or both.

    Attributes:
        id: Id of the new item.
        image: Bytes of the photo, the path of its file, or the open file.
        text: Caption that is shown with the photo; it takes no part in the search.
        uri: URI shown with the item, or None for its id.
        metadata: JSON values by field name.
        regions: An npz file of the regions that a detector found in the photo, for an index of a
            region model.
    """

    id: str
    image: PictureSource | None = None
    text: str | None = None
    uri: str | None = None
    metadata: dict[str, Any] = field(default_factory=dict[str, Any])
    regions: PictureSource | None = None


@dataclass(frozen=True)
class NewText:
    """A text to add as an item.

    Attributes:
        id: Id of the new item.
        text: The text itself.
        metadata: JSON values by field name.
    """

    id: str
    text: str
    metadata: dict[str, Any] = field(default_factory=dict[str, Any])


NewItem = NewPhoto | NewText


def add_photo_call(photo: NewPhoto, on_duplicate: OnDuplicate) -> Call[Added]:
    """Add one photo; its files are sent as a form, and read during the transfer."""
    files = _files(photo)
    if not files:
        return add_call([photo], on_duplicate)
    return Call(
        method="POST",
        path="v1/items/images",
        read=read_as(Added),
        again=_again([photo], on_duplicate),
        params={"on_duplicate": on_duplicate},
        body=form_body(_fields(photo), files),
    )


def add_call(items: Sequence[NewItem], on_duplicate: OnDuplicate) -> Call[Added]:
    """Add items of one kind in one step, all or none.

    Args:
        items: At least one item.
        on_duplicate: Handling of an id that already exists.

    Raises:
        InputError: If there are no items.
    """
    if not items:
        raise InputError("expected at least one item to add, got none")
    target = _target(items[0])
    return Call(
        method="POST",
        path=f"v1/items/{target}",
        read=read_as(Added),
        again=_again(items, on_duplicate),
        params={"on_duplicate": on_duplicate},
        body=content_body(
            lambda: json_list_chunks("items", ((_fields(item), _files(item)) for item in items))
        ),
    )


def add_calls(
    items: Iterable[NewItem], on_duplicate: OnDuplicate, max_items: int, max_bytes: int
) -> Iterator[Call[Added]]:
    """Add any number of items, in requests of bounded size and in their order.

    Args:
        items: Items of both kinds; each request contains items of one kind.
        on_duplicate: Handling of an id that already exists.
        max_items: Largest number of items per request.
        max_bytes: Largest total size of a request's files as sent; a larger file is sent alone.

    Raises:
        OSError: If a picture's file does not exist.
    """
    group: list[NewItem] = []
    group_bytes = 0
    for item in items:
        size = _sent_bytes(item, max_bytes)
        full = len(group) == max_items or group_bytes + size > max_bytes
        if group and (full or type(item) is not type(group[0])):
            yield add_call(group, on_duplicate)
            group, group_bytes = [], 0
        group.append(item)
        group_bytes += size
    if group:
        yield add_call(group, on_duplicate)


def _again(items: Sequence[NewItem], on_duplicate: OnDuplicate) -> Again:
    files = [source for item in items for source in _files(item).values()]
    if not all(map(can_be_sent_again, files)):
        return "never"
    # Unless duplicates are replaced or skipped, an item that is added twice would be reported as
    # its own duplicate.
    return "unless_begun" if on_duplicate == "error" else "always"


def _target(item: NewItem) -> Target:
    return "images" if isinstance(item, NewPhoto) else "texts"


def _files(item: NewItem) -> dict[str, PictureSource]:
    if not isinstance(item, NewPhoto):
        return {}
    return given_files(item.image, item.regions)


def _sent_bytes(item: NewItem, unknown: int) -> int:
    sizes = [picture_bytes(source) for source in _files(item).values()]
    # Size in base64.
    return sum(unknown if size is None else -(-size // 3) * 4 for size in sizes)


def _fields(item: NewItem) -> dict[str, Any]:
    fields: dict[str, Any] = {"id": item.id, "metadata": item.metadata}
    if item.text is not None:
        fields["text"] = item.text
    if isinstance(item, NewPhoto) and item.uri is not None:
        fields["uri"] = item.uri
    return fields
