"""The index that this process serves, as the tools of agents use it, see `aladin_service.mcp`.

The tools run what the HTTP routes run: the same jobs, limits, queues, metrics and messages of
errors.
"""

from __future__ import annotations

import logging
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from contextvars import ContextVar
from typing import NoReturn

from fastapi import Request
from starlette.types import Message

from aladin_index.search.options import SearchOptions
from aladin_index.search.results import SEARCH_ANSWER, SearchAnswer
from aladin_network.errors import AladinError
from aladin_network.types import Target
from aladin_service.client.calls import Photo
from aladin_service.client.connection import ErrorDetail, error_of
from aladin_service.http.access.rate_limits import TokenBucket
from aladin_service.http.error_responses import failure_of, message_of
from aladin_service.http.routes.evidence import maps_answer
from aladin_service.http.routes.index import get_index
from aladin_service.http.routes.listing import get_index_fields, list_items
from aladin_service.http.routes.pictures import check_size, pair_query
from aladin_service.http.routes.search import run_search, validated_body
from aladin_service.http.shared_state import ServiceState
from aladin_service.mcp.access import Query
from aladin_service.observe.logs import CURRENT_REQUEST
from aladin_service.search.answers import (
    IndexFields,
    Item,
    ItemPage,
    LiveIndexInfo,
    WordMapsAnswer,
)
from aladin_service.work.item_jobs import MapEvidence
from aladin_service.work.jobs import DrawEvidence, GetItem, ReadPhoto

_LOG = logging.getLogger(__name__)


class _Charge:
    """Charges the client of a request for every operation, as if each were a request."""

    def __init__(self, limit: TokenBucket | None) -> None:
        self._limit = limit
        self._paid = 0

    def operation(self) -> None:
        """Charge for one more operation; the first is paid with the request.

        A call that costs more than the client's burst passes when the bucket is full.

        Raises:
            RateLimitedError: If the client may not request so many now.
        """
        if self._limit is not None and self._paid > 0:
            self._limit.take(1, paid=self._paid)
        self._paid += 1


_CHARGE: ContextVar[_Charge | None] = ContextVar("charge", default=None)


class AgentServer:
    """Answers the requests of agents over HTTP."""

    def __init__(self, service: ServiceState) -> None:
        """Create the server without starting it; imports the protocol's SDK, which takes long.

        Args:
            service: State of the application.
        """
        from aladin_service.mcp.server import HttpServer

        self._server = HttpServer(ServedIndex(service), service.settings.max_json_bytes)
        self.start, self.stop = self._server.start, self._server.stop

    async def answer(self, request: Request, body: bytes) -> list[Message]:
        """Answer one request; cancelling the call cancels the tool.

        Args:
            request: The request, whose client is charged for every operation.
            body: Its whole body.

        Returns:
            The ASGI messages of the answer.
        """
        before = _CHARGE.set(_Charge(request.state.limit))
        try:
            return await self._server.answer(request.scope, body)
        finally:
            _CHARGE.reset(before)


class ServedIndex:
    """Access to the index of a service; raises `ServiceError` as a client of it would."""

    def __init__(self, service: ServiceState) -> None:
        """Use the workers, limits and metrics of a service."""
        self._service = service

    async def search(self, query: Query, target: Target, options: SearchOptions) -> SearchAnswer:
        """Search one collection."""
        async with _operation():
            body = validated_body(query.search(target, options).plain_fields())
            answered = await run_search(self._service, body.query(), target, body.options())
            return SEARCH_ANSWER.validate_json(answered.body)

    async def compare(self, photo_id: str, query: Query) -> WordMapsAnswer:
        """Compare the words of a text with the regions of a photo."""
        async with _operation():
            job = MapEvidence(pair_query(query.text, query.item_id), photo_id)
            return maps_answer(await self._service.workers.call(job))

    async def draw(self, photo_id: str, query: Query) -> bytes:
        """Draw the evidence for a text and a photo; returns a PNG file."""
        async with _operation():
            job = DrawEvidence(pair_query(query.text, query.item_id), photo_id)
            drawn = await self._service.workers.call(job)
            assert drawn.png is not None  # no version is known
            return drawn.png

    async def photo(self, photo_id: str, size_px: int) -> Photo:
        """Return a photo as a JPEG whose longest side has at most this many pixels."""
        async with _operation():
            check_size(self._service, size_px)
            read = await self._service.workers.call(ReadPhoto(photo_id, size_px))
            assert read.photo is not None  # no version is known
            return Photo(read.photo.data, read.photo.media_type)

    async def item(self, target: Target, item_id: str) -> Item:
        """Look an item up."""
        async with _operation():
            return Item.model_validate(await self._service.workers.call(GetItem(target, item_id)))

    async def newest(self, target: Target, count: int) -> ItemPage:
        """Return the items that were added last."""
        async with _operation():
            return await list_items(target, self._service, limit=count)

    async def index(self) -> LiveIndexInfo:
        """Describe the live generation."""
        async with _operation():
            return await get_index(self._service)

    async def fields(self) -> IndexFields:
        """Describe the metadata fields."""
        async with _operation():
            return await get_index_fields(self._service)


@asynccontextmanager
async def _operation() -> AsyncGenerator[None]:
    """Charge for an operation, and raise its error as a client would.

    Raises:
        ServiceError: If the operation fails.
    """
    charge = _CHARGE.get()
    try:
        if charge is not None:
            charge.operation()
        yield
    except AladinError as error:
        _raise_as_answered(error)
    except Exception as error:
        _LOG.exception("operation failed")
        _raise_as_answered(error)


def _raise_as_answered(error: Exception) -> NoReturn:
    failure, record = failure_of(error), CURRENT_REQUEST.get()
    request_id = None
    if record is not None:
        request_id, record.error_code = record.request_id, failure.code
    detail = ErrorDetail(code=failure.code, message=message_of(error), request_id=request_id)
    raise error_of(failure.status, detail) from None
