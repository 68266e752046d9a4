"""Requests for items, their photos and evidence, and for the index and its state."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from itertools import pairwise
from typing import Any, Literal, TypeVar
from urllib.parse import quote

import httpx

from aladin_index.facts import IndexFacts, IndexFields
from aladin_index.search.request import one_of
from aladin_network.types import Target
from aladin_service.client.calls import Call, Calls, Photo, form_body, read_as
from aladin_service.client.connection import LISTED_ITEMS, patience
from aladin_service.client.pictures import PictureSource, again_with, given_files
from aladin_service.search.answers import (
    Deleted,
    Item,
    ItemPage,
    WordMapsAnswer,
)

ListDirection = Literal["desc", "asc"]

# What encodeURIComponent of a browser does not escape either, besides letters, digits and -_.~.
_PLAIN = "!*'()"
_RESOLVED = frozenset({"", ".", ".."})

T = TypeVar("T")


def item_path(item_id: str) -> str:
    """Write an id of any characters as the end of a path, as `itemPath` of the page does.

    Slashes stay, because common proxies answer %2F with 404. Only beside an empty part, ``.`` or
    ``..`` they are escaped: clients and proxies would resolve such parts of a path.
    """
    parts = item_id.split("/")
    path = quote(parts[0], safe=_PLAIN)
    for before, part in pairwise(parts):
        slash = "%2F" if {before, part} & _RESOLVED else "/"
        path += slash + quote(part, safe=_PLAIN)
    return path


def item(target: Target, item_id: str) -> Call[Item]:
    """Look an item up.

    Raises:
        NotFoundError: If there is no such item.
    """
    return Call(method="GET", path=f"v1/items/{target}/{item_path(item_id)}", read=read_as(Item))


def list_items(
    target: Target = "images",
    *,
    sort: str | None = None,
    order: ListDirection = "desc",
    filter: Mapping[str, Any] | None = None,
    limit: int | None = None,
    after: str | None = None,
    stack: bool = False,
) -> Call[ItemPage]:
    """List a page of items without a query.

    Args:
        target: Collection to list.
        sort: Metadata field to sort by, such as ``taken_at``, or None for the time of addition;
            items without a value come last.
        order: "desc" lists the largest value, or the newest item, first; "asc" the smallest.
        filter: Metadata that an item must have, as in a search.
        limit: Maximum number of items, or None for the service's default, 50.
        after: The field `next` of the page before, or None for the first page.
        stack: Whether photos of one moment and copies are one item, with the `stack` of all.

    Raises:
        RefusedInputError: If the index is in a vector database, an argument is out of its bounds,
            or the field is not indexed for filters.
        NotFoundError: If the index has no such collection, or never had the item `after`.
    """
    wanted = {
        "limit": None if limit is None else str(limit),
        "after": after,
        "sort": sort,
        "order": None if order == "desc" else order,
        "filter": json.dumps(filter) if filter else None,
        "stack": "true" if stack else None,
    }
    params = {name: value for name, value in wanted.items() if value is not None}
    return Call(method="GET", path=f"v1/items/{target}", read=read_as(ItemPage), params=params)


def every_item(
    target: Target = "images",
    *,
    sort: str | None = None,
    order: ListDirection = "desc",
    filter: Mapping[str, Any] | None = None,
    page_size: int = LISTED_ITEMS,
    stack: bool = False,
) -> Calls[ItemPage]:
    """List all items, a page in a request.

    Args:
        target: Collection to list.
        sort: Metadata field to sort by, see `list_items`.
        order: Direction of the order.
        filter: Metadata that an item must have.
        page_size: Number of items per request.
        stack: Whether photos of one moment and copies are one item.

    Yields:
        The items in the order, as their pages come back.

    Raises:
        RefusedInputError, NotFoundError: See `list_items`.
    """
    after = None
    while True:
        page = yield list_items(
            target,
            sort=sort,
            order=order,
            filter=filter,
            limit=page_size,
            after=after,
            stack=stack,
        )
        if page.next is None:
            return
        after = page.next


def delete(target: Target, item_id: str) -> Call[Deleted]:
    """Delete an item.

    Raises:
        NotFoundError: If there is no such item.
    """
    return Call(
        method="DELETE",
        path=f"v1/items/{target}/{item_path(item_id)}",
        read=read_as(Deleted),
        again="unless_begun",  # a repetition would report that there is no such item
    )


def photo(item_id: str, size_px: int | None = None) -> Call[Photo]:
    """Fetch an image's photo: its file, or with `size_px` a JPEG with at most this long a side.

    Raises:
        NotFoundError: If there is no such image, or its file no longer exists.
    """

    def read(response: httpx.Response) -> Photo:
        return Photo(response.content, response.headers.get("content-type", ""))

    params = {} if size_px is None else {"size": str(size_px)}
    return Call(method="GET", path=f"v1/images/{item_path(item_id)}", read=read, params=params)


def explain(
    item_id: str,
    text: str | None = None,
    *,
    query_id: str | None = None,
    image: PictureSource | None = None,
    regions: PictureSource | None = None,
    box: Sequence[float] | None = None,
) -> Call[WordMapsAnswer]:
    """Compare each word of a text, or each region in a box, with every region of a photo.

    Args:
        item_id: Id of an indexed photo for a text query, of an indexed text for a photo, of either
            for a part of a photo.
        text: Words of the query; if omitted, one of the following arguments is required.
        query_id: Id of another item of the index.
        image: A photo that is not in the index; its file is read while it is sent.
        regions: Regions of that photo, or instead of it, for an index of a region model.
        box: Part of the query's photo to compare, in fractions of its width and height.

    Returns:
        The scores of both stages; for each word its part of the alignment score, its best region,
        and its cosines with all regions.

    Raises:
        InputError: If not exactly one of `text`, `query_id` and a photo is given.
        NotFoundError: If there is no such item.
        RefusedInputError: If both have one modality (without a box), or the photo is over a limit.
        OSError: If the photo's file cannot be read.
    """
    files, named = given_files(image, regions), {"text": text, "query_id": query_id}
    return _compared("v1/explain", item_id, named, files, box, read_as(WordMapsAnswer))


def explain_png(
    item_id: str,
    text: str | None = None,
    *,
    query_id: str | None = None,
    image: PictureSource | None = None,
    regions: PictureSource | None = None,
    box: Sequence[float] | None = None,
) -> Call[bytes]:
    """Draw the evidence for a score: the photo with its regions, the text with its numbers.

    The file also carries the numbers, see `aladin_service.evidence.png.read_evidence`. The
    arguments and errors are those of `explain`.
    """
    files, named = given_files(image, regions), {"text": text, "query_id": query_id}
    return _compared("v1/explain.png", item_id, named, files, box, lambda answer: answer.content)


def index() -> Call[IndexFacts]:
    """Describe the live generation of the index."""
    return Call(method="GET", path="v1/index", read=read_as(IndexFacts))


def index_fields() -> Call[IndexFields]:
    """Describe the metadata fields that are indexed for filters: values, or their range.

    Raises:
        RefusedInputError: If the index is in a vector database.
    """
    return Call(method="GET", path="v1/index/fields", read=read_as(IndexFields))


def wait_until_ready(timeout_s: float = 60.0) -> Call[None]:
    """Wait until the service can answer searches.

    Raises:
        NotReadyError: If the service answers, but is not ready in time.
        ServiceUnreachableError: If the service does not answer in time.
    """
    return replace(probe("readyz"), again="always", policy=patience(timeout_s))


def probe(path: str) -> Call[None]:
    """Request only a status, once."""
    return Call(method="GET", path=path, read=lambda _: None, again="never")


def _compared(
    path: str,
    item_id: str,
    named: Mapping[str, str | None],
    files: Mapping[str, PictureSource],
    box: Sequence[float] | None,
    read: Callable[[httpx.Response], T],
) -> Call[T]:
    """Compare an item with a text, another item or a photo, exactly one of them."""
    one_of({**named, "photo": files or None})
    if files:
        part = {} if box is None else {"box": list(box)}
        return Call(
            method="POST",
            path=path,
            read=read,
            again=again_with(files.values()),
            body=form_body({"id": item_id} | part, files),
        )
    asked = {"id": item_id, **named, "box": None if box is None else ",".join(map(str, box))}
    params = {name: value for name, value in asked.items() if value is not None}
    return Call(method="GET", path=path, read=read, params=params)
