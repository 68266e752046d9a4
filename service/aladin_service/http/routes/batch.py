"""Batch search: many searches in one request.

Its queries enter the queues beside those of single requests.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Sequence
from typing import Annotated, Any, cast

from fastapi import Depends, Request, Response
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from aladin_index.search.results import SearchAnswer
from aladin_network.errors import InputError
from aladin_network.types import Target
from aladin_service.http.access.rate_limits import charge
from aladin_service.http.bodies import json_request_docs, need_json, read_json_object, run_sized
from aladin_service.http.error_responses import (
    ErrorBody,
    error_docs,
    invalid_input,
    part_error,
)
from aladin_service.http.errors import MAX_ANSWER_BYTES, AnswerTooLargeError
from aladin_service.http.router import ServiceRouter
from aladin_service.http.routes.search import SearchBody, run_search
from aladin_service.http.shared_state import Service, ServiceState, until_disconnect
from aladin_service.http.turns import NOT_TAKEN, Turns
from aladin_service.observe.logs import CURRENT_REQUEST
from aladin_service.search.job import Answered
from aladin_service.search.task_group import task_group

_LOG = logging.getLogger(__name__)

MAX_QUERIES = 256


class BatchedSearch(SearchBody):
    """A search of a batch: its fields and its target."""

    model_config = ConfigDict(
        json_schema_extra={"examples": [{"target": "images", "text": "two dogs in the snow"}]}
    )

    target: Target = Field()  # pyright: ignore[reportIncompatibleVariableOverride]


# A search of a batch, or the reason why it is not valid.
BatchEntry = BatchedSearch | InputError


class BatchFeed:
    """A running batch: its queries enter the queues as places become free.

    Several requests take turns: each has the next place in its turn, whatever its length.
    """

    def __init__(
        self, service: ServiceState, entries: Sequence[BatchEntry], request_id: str
    ) -> None:
        self._service = service
        self._entries = entries
        self._request_id = request_id
        self._next = iter(enumerate(entries))
        self._bodies: list[bytes] = [b""] * len(entries)
        self._turns = Turns(service.batch_room)
        self._bytes = 0  # of all answers

    async def run(self) -> list[bytes]:
        """Answer all queries; cancelling withdraws those that wait.

        Of each, in their order, the answer as JSON or a `BatchedError`; an error is raised
        only if not even the first query could be accepted.
        """
        feeders = min(len(self._entries), self._service.settings.max_batch)
        with self._service.batch_room.request():
            async with task_group() as group:
                for _ in range(feeders):
                    group.create_task(self._feed())
        return self._bodies

    async def _feed(self) -> None:
        for place, entry in self._next:
            try:
                if isinstance(entry, InputError):
                    raise entry
                if self._bytes > MAX_ANSWER_BYTES:
                    raise AnswerTooLargeError
                body = (await self._answer(entry)).body
                self._bytes += len(body)
                if self._bytes > MAX_ANSWER_BYTES:
                    raise AnswerTooLargeError
                self._bodies[place] = body
            except NOT_TAKEN as error:
                if not self._turns.taken:
                    raise
                self._fail(place, error)
            except Exception as error:
                self._fail(place, error)

    async def _answer(self, search: BatchedSearch) -> Answered:
        return await self._turns.enter(
            lambda: run_search(self._service, search, search.target), search.cost
        )

    def _fail(self, place: int, error: Exception) -> None:
        response = part_error(error, self._request_id)
        record = CURRENT_REQUEST.get()
        if record is not None:
            record.failed_parts += 1
        if response.status_code >= 500 and response.status_code != 503:
            _LOG.error("request %s, query %d failed", self._request_id, place, exc_info=error)
        status = f'{{"status":{response.status_code},'.encode()
        self._bodies[place] = status + bytes(response.body)[1:]


router = ServiceRouter(prefix="/v1/search", tags=["search"])


class BatchedError(ErrorBody):
    """The error of one search of a batch; it does not affect the other searches."""

    status: int = Field(description="Status that the search alone would have been answered with.")


class BatchAnswer(BaseModel):
    """Results of the searches, in their order."""

    answers: list[SearchAnswer | BatchedError]
    took_ms: float


async def read_batch(request: Request, service: Service) -> list[BatchEntry]:
    """Read a request with many searches; an error in one does not affect the others."""
    need_json(request)
    body = await read_json_object(request, service, many=True)
    fields = body.fields
    queries = fields.pop("queries", None)
    if fields:
        raise InputError(f"{min(fields)}: unknown field")
    if not isinstance(queries, list):
        raise InputError("queries: expected a list")
    queries = cast(list[object], queries)
    limit = MAX_QUERIES
    if not 1 <= len(queries) <= limit:
        raise InputError(f"queries: expected 1 to {limit}, got {len(queries)}")
    charge(request, len(queries))
    entries = await run_sized(service, body.num_bytes, _read_entries, queries)
    cost = sum(1 if isinstance(each, InputError) else each.cost for each in entries)
    charge(request, cost, paid=len(queries))
    return entries


Batch = Annotated[list[BatchEntry], Depends(read_batch)]

_SCHEMA: dict[str, Any] = {
    "title": "SearchBatch",
    "type": "object",
    "description": "Searches, answered in the same order.",
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
    """Answer many searches, each with the answer or the error of a separate request.

    Queries of a batch enter the queues as places become free, so a batch may be longer than a
    queue. It is refused as a whole (429) only if its first query finds no place. Once the answers
    together are larger than an answer may be, those that follow are errors.
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
