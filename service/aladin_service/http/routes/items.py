"""Items of the index: reading, adding and deleting, and parsing of the bodies that add items."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Annotated, Any, cast

from fastapi import Depends, Path, Query, Request
from pydantic import ConfigDict, FailFast, Field, ValidationError

from aladin_index.encode.source_items import ImageItem, SourceItem, TextItem
from aladin_index.items.uploaded_photos import UploadedPhoto
from aladin_index.search.request import MAX_ASKED_ID_CHARS
from aladin_network.errors import InputError
from aladin_network.types import OnDuplicate, Target
from aladin_service.http.access.audit import Audit
from aladin_service.http.access.rate_limits import charge
from aladin_service.http.bodies import Body, StrictBody, read_body, request_docs, run_sized
from aladin_service.http.error_responses import error_docs, invalid_input
from aladin_service.http.router import ServiceRouter
from aladin_service.http.shared_state import Service, WritableService
from aladin_service.search.answers import Added, AddTookMs, Deleted, Item, NewPhoto
from aladin_service.work.jobs import AddItems, DeleteItem, GetItem

MAX_ITEMS = 100


# The dataclass is frozen; the model that takes over its fields need not be.
class NewItem(StrictBody, NewPhoto):  # pyright: ignore[reportGeneralTypeIssues]
    """An item to add: an image with `image` or `regions`, or a text with `text`."""

    model_config = ConfigDict(
        json_schema_extra={
            "examples": [
                {"id": "snow-1", "text": "two dogs in the snow", "metadata": {"year": 2024}}
            ]
        },
    )

    def image_item(self) -> ImageItem:
        if self.image is None and self.regions is None:
            raise InputError(f"item {self.id!r}: an image item requires an image")
        return ImageItem(
            id=self.id,
            uri=self.id if self.uri is None else self.uri,
            text=self.text,
            metadata=self.metadata,
            upload=None if self.image is None else UploadedPhoto(cast(bytes, self.image)),
            region_file=cast(bytes | None, self.regions),
        )

    def text_item(self) -> TextItem:
        if self.text is None:
            raise InputError(f"item {self.id!r}: a text item requires text")
        if any(part is not None for part in (self.image, self.regions, self.uri)):
            raise InputError(
                f"item {self.id!r}: a text item cannot have an image, regions or a uri"
            )
        return TextItem(id=self.id, text=self.text, metadata=self.metadata)


class NewItemList(StrictBody):
    """Several items, added in one step: all of them or none."""

    # Validation ends at the first wrong item.
    items: Annotated[list[NewItem], FailFast()] = Field(min_length=1)


async def read_new_items(request: Request, service: Service) -> list[NewItem]:
    """Read a request with one item, JSON or multipart, or with a JSON list of them."""
    body = await read_body(request, service, json_fields=("metadata",), many=True)
    items = body.fields.get("items") if body.kind == "json" else None
    if isinstance(items, list):
        count, limit = len(cast(list[object], items)), MAX_ITEMS
        if count > limit:
            raise InputError(f"items: expected at most {limit} in a request, got {count}")
        charge(request, count)
    try:
        return await run_sized(service, body.num_bytes, _validate, body)
    except ValidationError as error:
        raise invalid_input(error) from None


def _validate(body: Body) -> list[NewItem]:
    strict = body.kind == "json"
    if strict and "items" in body.fields:
        return NewItemList.model_validate(body.fields, strict=True).items
    return [NewItem.model_validate(body.fields, strict=strict)]


NewItems = Annotated[list[NewItem], Depends(read_new_items)]

_SCHEMA = NewItem.model_json_schema()
_LIST_SCHEMA: dict[str, Any] = {
    "title": NewItemList.__name__,
    "type": "object",
    "description": NewItemList.__doc__,
    "properties": {"items": {"type": "array", "minItems": 1, "items": _SCHEMA}},
    "required": ["items"],
    "additionalProperties": False,
}
NEW_ITEMS_DOCS = request_docs(_SCHEMA, _LIST_SCHEMA, form_title="NewItemForm")


router = ServiceRouter(prefix="/v1/items", tags=["items"])

ItemId = Annotated[str, Path(max_length=MAX_ASKED_ID_CHARS)]


@router.get(
    "/{target}/{item_id:path}",
    summary="Read an item",
    responses=error_docs(404, 422, 429, 503),
)
async def get_item(target: Target, item_id: ItemId, service: Service) -> Item:
    """Return one item; an id may contain slashes, and # and ? written as %23 and %3F."""
    return Item.model_validate(await service.workers.call(GetItem(target, item_id)))


@router.post(
    "/{target}",
    summary="Add items",
    status_code=201,
    openapi_extra=NEW_ITEMS_DOCS,
    responses=error_docs(403, 404, 408, 409, 413, 415, 422, 429, 503, 507),
)
async def add_items(
    target: Target,
    service: WritableService,
    items: NewItems,
    audit: Audit,
    on_duplicate: Annotated[
        OnDuplicate,
        Query(
            description="If an id already exists: add nothing of the request (409), replace the "
            "old item, or keep the old item."
        ),
    ] = "error",
) -> Added:
    """Add one or several items in one step; if one is not valid, none is added."""
    started = time.perf_counter()
    audit.target, audit.ids = target, [item.id for item in items]
    new: Sequence[SourceItem]
    if target == "images":
        new = [item.image_item() for item in items]
    else:
        new = [item.text_item() for item in items]
    timed = await service.workers.call(AddItems(target, tuple(new), on_duplicate))
    report = timed.report
    audit.generation = report.generation
    audit.result = {
        "added": report.ids["added"],
        "replaced": report.ids["replaced"],
        "kept": report.ids["kept"],
    }
    return Added(
        added=report.ids["added"],
        replaced=report.ids["replaced"],
        kept=report.ids["kept"],
        generation=report.generation,
        took_ms=AddTookMs(
            decode=timed.decode_ms,
            encode=timed.encode_ms,
            write=timed.write_ms,
            total=1000 * (time.perf_counter() - started),
        ),
    )


@router.delete(
    "/{target}/{item_id:path}",
    summary="Delete an item",
    responses=error_docs(403, 404, 422, 429, 503, 507),
)
async def delete_item(
    target: Target, item_id: ItemId, service: WritableService, audit: Audit
) -> Deleted:
    """Delete one item; its id is written as in `GET`."""
    audit.target, audit.ids = target, [item_id]
    report = await service.workers.call(DeleteItem(target, item_id))
    audit.result, audit.generation = {"deleted": [item_id]}, report.generation
    return Deleted(deleted=item_id, generation=report.generation)
