"""Items without a query: pages of a collection in an order, and the fields to filter by."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Annotated, Any, Literal, cast

from fastapi import Query

from aladin_index.facts import FieldCount, IndexField, IndexFields
from aladin_index.items.field_tables import FieldValues
from aladin_index.items.filters import Filter, parse_filter
from aladin_index.search.collection import ListOrder
from aladin_index.search.request import MAX_ASKED_ID_CHARS
from aladin_network.errors import InputError
from aladin_network.types import Target
from aladin_service.http.error_responses import error_docs
from aladin_service.http.router import ServiceRouter
from aladin_service.http.shared_state import Service
from aladin_service.search.answers import ItemPage, ListedItem
from aladin_service.work.jobs import ListFields, ListItems

router = ServiceRouter(prefix="/v1")

MAX_LISTED = 200
# Longer filters do not fit into an address of common servers.
_MAX_FILTER_CHARS = 4096

Limit = Annotated[int, Query(ge=1, le=MAX_LISTED, description="Maximum number of items.")]
After = Annotated[
    str | None,
    Query(
        max_length=MAX_ASKED_ID_CHARS,
        description="Id of the item after which the page begins: `next` of the page before.",
    ),
]
Sort = Annotated[
    str | None,
    Query(
        max_length=MAX_ASKED_ID_CHARS,
        description="Metadata field to sort by, such as `taken_at`; items without a value come"
        " last. Omitted: by the time of addition.",
    ),
]
Order = Annotated[
    Literal["desc", "asc"], Query(description="desc: the largest value or the newest item first.")
]
JsonFilter = Annotated[
    str | None,
    Query(max_length=_MAX_FILTER_CHARS, description="Filter as JSON, as in a search."),
]


Stacked = Annotated[
    bool,
    Query(
        description="Whether photos of one moment and copies are one item, the first in the order,"
        " whose `stack` names all that pass the filter; `limit` counts these, `total` all photos."
    ),
]


@router.get(
    "/items/{target}",
    tags=["items"],
    summary="List items",
    responses=error_docs(404, 422, 429, 503),
)
async def list_items(
    target: Target,
    service: Service,
    limit: Limit = 50,
    after: After = None,
    sort: Sort = None,
    order: Order = "desc",
    filter: JsonFilter = None,
    stack: Stacked = False,
) -> ItemPage:
    """List items in an order; not for an index that is stored in a vector database."""
    listed = ListOrder(sort, descending=order == "desc", stack=stack)
    job = ListItems(target, _parsed(filter), listed, after, limit)
    page, generation = await service.workers.call(job)
    items = [ListedItem.model_validate(item) for item in page.items]
    for item, of_item in zip(items, page.stacks, strict=True):
        item.stack = of_item
    return ItemPage(
        items=items,
        total=page.total,
        next=None if page.is_last else items[-1].id,
        generation=generation,
    )


@router.get(
    "/index/fields", tags=["index"], summary="List fields", responses=error_docs(422, 429, 503)
)
async def get_index_fields(service: Service, filter: JsonFilter = None) -> IndexFields:
    """Describe the metadata fields that are indexed for filters, with their values or ranges.

    With a filter, values are counted among the items that pass it, but for its conditions on the
    field itself: what there is to choose beside them.
    """
    fields = await service.workers.call(ListFields(_parsed(filter)))
    return IndexFields(images=_fields(fields, "images"), texts=_fields(fields, "texts"))


def _parsed(filter: str | None) -> Filter | None:
    if filter is None:
        return None
    try:
        spec = json.loads(filter)
    except (ValueError, RecursionError):
        raise InputError("filter: not JSON") from None
    if not isinstance(spec, dict):
        raise InputError("filter: expected a JSON object")
    return parse_filter(cast(dict[str, Any], spec))


def _fields(
    fields: Mapping[Target, Mapping[str, list[FieldValues]]], target: Target
) -> list[IndexField] | None:
    if target not in fields:
        return None
    return [
        IndexField(
            name=name,
            kind=values.kind,
            least=values.as_written(values.least),
            greatest=values.as_written(values.greatest),
            values=_counts(values),
        )
        for name, of_name in fields[target].items()
        for values in of_name
    ]


def _counts(values: FieldValues) -> list[FieldCount] | None:
    most = values.most_frequent()
    if most is None:
        return None
    return [FieldCount(value=value, count=count) for value, count in most.items()]
