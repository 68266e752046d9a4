"""Requests that add new items, one by one or many in requests of bounded size."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

from aladin_network.errors import InputError
from aladin_network.types import OnDuplicate, Target
from aladin_service.client.calls import Call, Calls, content_body, form_body, read_as
from aladin_service.client.connection import ADD_BYTES, ADD_ITEMS, Again
from aladin_service.client.pictures import (
    PictureSource,
    can_be_sent_again,
    given_files,
    json_list_chunks,
    picture_bytes,
)
from aladin_service.search.answers import Added, NewPhoto


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


def add_photo(photo: NewPhoto, on_duplicate: OnDuplicate = "error") -> Call[Added]:
    """Add one photo; its file is read while it is sent.

    Args:
        photo: The new item.
        on_duplicate: Treatment of an id that already exists. With "error" a broken connection is
            not retried, because the photo may have been added.

    Raises:
        ConflictError: If `on_duplicate` is "error" and the ID exists already.
        RefusedInputError: If the photo is not a picture, or exceeds a limit.
        OSError: If the file cannot be read.
    """
    files = _files(photo)
    if not files:
        return _add([photo], on_duplicate)
    return Call(
        method="POST",
        path="v1/items/images",
        read=read_as(Added),
        again=_again([photo], on_duplicate),
        params={"on_duplicate": on_duplicate},
        body=form_body(_fields(photo), files),
    )


def add_photos(photos: Sequence[NewPhoto], on_duplicate: OnDuplicate = "error") -> Call[Added]:
    """Add several photos in one step, all or none; otherwise as `add_photo`."""
    return _add(photos, on_duplicate)


def add_text(text: NewText, on_duplicate: OnDuplicate = "error") -> Call[Added]:
    """Add one text; otherwise as `add_photo`."""
    return _add([text], on_duplicate)


def add_texts(texts: Sequence[NewText], on_duplicate: OnDuplicate = "error") -> Call[Added]:
    """Add several texts in one step, all or none; otherwise as `add_photo`."""
    return _add(texts, on_duplicate)


def add_many(
    items: Iterable[NewItem],
    on_duplicate: OnDuplicate = "error",
    *,
    max_items: int = ADD_ITEMS,
    max_bytes: int = ADD_BYTES,
) -> Calls[Added]:
    """Add any number of photos and texts in their order, in requests of bounded size.

    Args:
        items: New items, read while the requests are sent; each request has items of one kind.
        on_duplicate: Treatment of ids that already exist.
        max_items: Maximum number of items in a request.
        max_bytes: Maximum bytes of pictures in a request; a larger picture is sent alone.

    Yields:
        The result of each request, once it is on the disk; an error undoes none before it.

    Raises:
        ServiceError: If the service rejects a whole request, as in `add_photo`.
        OSError: If a file cannot be read.
    """
    group: list[NewItem] = []
    group_bytes = 0
    for item in items:
        size = _sent_bytes(item, max_bytes)
        full = len(group) == max_items or group_bytes + size > max_bytes
        if group and (full or type(item) is not type(group[0])):
            yield _add(group, on_duplicate)
            group, group_bytes = [], 0
        group.append(item)
        group_bytes += size
    if group:
        yield _add(group, on_duplicate)


def _add(items: Sequence[NewItem], on_duplicate: OnDuplicate) -> Call[Added]:
    """Add items of one kind in one step, all or none.

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
