"""The items of the index: what it knows of one, new ones, and those that are to go."""

from __future__ import annotations

import time
from typing import Annotated

from fastapi import APIRouter, Path, Query

from service.answers.items import Added, AddTookMs, Deleted, Item
from service.http.access.audit import Audit
from service.http.errors import error_docs
from service.http.item_requests import NEW_ITEMS_DOCS, NewItems, photos_to_add
from service.http.requests import MAX_ASKED_ID_CHARS
from service.http.state import Service, WritableService
from service.queries import OnDuplicate, Target
from service.work.item_jobs import AddPhotos, AddTexts, DeleteItem, GetItem

router = APIRouter(prefix="/v1/items", tags=["items"])

ItemId = Annotated[str, Path(max_length=MAX_ASKED_ID_CHARS)]


@router.get(
    "/{target}/{item_id:path}",
    summary="Read an item",
    responses=error_docs(404, 422, 429, 503),
)
async def get_item(target: Target, item_id: ItemId, service: Service) -> Item:
    """Return one item; an id may hold slashes, and # and ? written as %23 and %3F."""
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
            description="Where an id is there already: add nothing of the request (409), put the "
            "new item in the place of the old, or keep the old."
        ),
    ] = "error",
) -> Added:
    """Add one item or several in one step; all of them or, where one is at fault, none."""
    started = time.perf_counter()
    audit.target, audit.ids = target, [item.id for item in items]
    if target == "images":
        photos = await photos_to_add(items, service.fetcher)
        timed = await service.workers.call(AddPhotos(photos, on_duplicate))
    else:
        texts = tuple(item.words() for item in items)
        timed = await service.workers.call(AddTexts(texts, on_duplicate))
    report = timed.report
    audit.generation = report.generation
    audit.result = {
        "added": report.added,
        "replaced": report.replaced,
        "skipped": report.skipped,
    }
    return Added(
        added=report.added,
        replaced=report.replaced,
        skipped=report.skipped,
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
