"""Many searches in one request."""

from __future__ import annotations

import time
from typing import Annotated, Any, cast

from fastapi import APIRouter, Depends, Request, Response
from pydantic import BaseModel, Field, ValidationError

from aladin.errors import InputError
from service.answers.search import SearchAnswer
from service.http.access.rate_limits import charge
from service.http.batch_feed import BatchedSearch, BatchEntry, BatchFeed
from service.http.bodies import json_request_docs
from service.http.disconnect import until_disconnect
from service.http.errors import ContentTypeError, ErrorBody, error_docs, invalid_input
from service.http.json_body import read_json_object, run_sized
from service.http.state import Service

router = APIRouter(prefix="/v1/search", tags=["search"])


class BatchedError(ErrorBody):
    """Why one search of a batch failed; the others know nothing of it."""

    status: int = Field(description="That the search would have been answered with alone.")


class BatchAnswer(BaseModel):
    """What became of the searches, in their order."""

    answers: list[SearchAnswer | BatchedError]
    took_ms: float


async def read_batch(request: Request, service: Service) -> list[BatchEntry]:
    """Read a request with many searches; what is wrong with one of them is its own fault alone.

    Raises:
        ContentTypeError: it is no JSON.
        InputError: it is broken, or has none or too many.
        RateLimitedError: the client may not ask for so many now.
    """
    content_type = request.headers.get("content-type", "")
    if content_type.partition(";")[0].strip().lower() != "application/json":
        raise ContentTypeError(content_type, "application/json")
    body = await read_json_object(request, service, many=True)
    fields = body.fields
    queries = fields.pop("queries", None)
    if fields:
        raise InputError(f"{min(fields)}: unknown field")
    if not isinstance(queries, list):
        raise InputError("queries: expected a list")
    queries = cast(list[object], queries)
    limit = service.settings.max_batch_queries
    if not 1 <= len(queries) <= limit:
        raise InputError(f"queries: expected 1 to {limit}, got {len(queries)}")
    await charge(request, len(queries))
    return await run_sized(service, body.num_bytes, _read_entries, queries)


Batch = Annotated[list[BatchEntry], Depends(read_batch)]

_SCHEMA: dict[str, Any] = {
    "title": "SearchBatch",
    "type": "object",
    "description": "Searches, answered in their order.",
    "properties": {
        "queries": {"type": "array", "minItems": 1, "items": BatchedSearch.model_json_schema()}
    },
    "required": ["queries"],
    "additionalProperties": False,
}


@router.post(
    "/batch",
    summary="Run several searches",
    response_model=BatchAnswer,
    openapi_extra=json_request_docs(_SCHEMA),
    responses=error_docs(408, 413, 415, 422, 429, 503),
)
async def search_batch(request: Request, entries: Batch, service: Service) -> Response:
    """Answer many searches; each gets the answer, or the error, that it would get alone.

    A batch takes places in the waiting line as they come free, so it may be larger than the line.
    It is refused as a whole (429) only when not even its first search finds a place.
    """
    started = time.perf_counter()
    feed = BatchFeed(service, entries, request.state.request_id)
    bodies = await until_disconnect(request, feed.run())
    took_ms = 1000 * (time.perf_counter() - started)
    joined = b",".join(bodies)
    body = b'{"answers":[%b],"took_ms":%b}' % (joined, repr(took_ms).encode())
    return Response(body, media_type="application/json")


def _read_entries(queries: list[object]) -> list[BatchEntry]:
    return [_read_entry(query) for query in queries]


def _read_entry(fields: object) -> BatchEntry:
    try:
        return BatchedSearch.model_validate(fields, strict=True)
    except ValidationError as error:
        return invalid_input(error)
