"""Search requests: conversion of the request body to a query and options; the response."""

from __future__ import annotations

import asyncio
import time
from typing import Annotated, ClassVar

from fastapi import Request, Response
from pydantic import ConfigDict, Field, ValidationError, model_validator
from starlette.types import ASGIApp, Receive, Scope, Send

from aladin_index.items.filters import parse_filter
from aladin_index.search.options import OPTION_NAMES, SearchOptions
from aladin_index.search.request import (
    ALL_DESCRIPTION,
    MAX_TERMS,
    NOT_DESCRIPTION,
    SearchRequest,
    SearchTerm,
)
from aladin_index.search.results import SearchAnswer
from aladin_network.errors import AladinError, InputError, TextTooLongError
from aladin_network.types import Target
from aladin_service.door import query_of
from aladin_service.http.access.rate_limits import charge
from aladin_service.http.bodies import StrictBody, read_body, request_docs, run_sized
from aladin_service.http.error_responses import (
    answer_error,
    error_docs,
    error_response,
    invalid_input,
)
from aladin_service.http.errors import MAX_ANSWER_BYTES, AnswerTooLargeError
from aladin_service.http.middleware import declared_length
from aladin_service.http.router import ServiceRoute, ServiceRouter
from aladin_service.http.shared_state import ServiceState, until_disconnect
from aladin_service.observe.logs import CURRENT_REQUEST, SearchRecord
from aladin_service.search.job import Answered, SearchJob, TextQuery
from aladin_service.work.workers import Workers

# Of a term that is compared with all items, next to the candidates alone.
_EXHAUSTIVE_COST = 4

_OPTIONS = frozenset(OPTION_NAMES)
_DEFAULTS = SearchOptions()

# A shorter body is taken for a text or the id of an item, which wait for the same slots: it has no
# room for a photo. A longer one is read first: it may belong to a queue with free places.
_TEXT_BYTES = 2048

# Fields of a form whose value is JSON.
_JSON_FIELDS = ("filter", "box", "all", "not", "like", "unread", "facets")


class TermBody(StrictBody, SearchTerm):  # pyright: ignore[reportGeneralTypeIssues]
    """A term of a query: exactly one of the first three fields, its box and its weight."""

    model_config = ConfigDict(title="QueryTerm")

    @model_validator(mode="after")
    def _one_query(self) -> TermBody:
        try:
            self.check()
        except InputError as error:
            raise ValueError(str(error)) from None
        return self


# Validation ends at the first entry that is wrong or one too many: a body has room for 300,000.
_Terms = Annotated[list[TermBody], Field(max_length=MAX_TERMS, fail_fast=True)]


# The dataclass is frozen; the model that takes over its fields need not be.
class SearchBody(StrictBody, SearchRequest):  # pyright: ignore[reportGeneralTypeIssues]
    """What to search for, and the options.

    Exactly one of `text`, `image`, `id` and `regions` is given, or a query of several terms:
    `all`, `like` or both, and perhaps `not`.
    """

    model_config = ConfigDict(
        json_schema_extra={"examples": [{"text": "two dogs in the snow", "k": 5}]},
    )

    target: ClassVar[Target | None] = None  # pyright: ignore[reportIncompatibleVariableOverride]
    all: _Terms | None = Field(default=None, description=ALL_DESCRIPTION)
    not_: _Terms | None = Field(default=None, alias="not", description=NOT_DESCRIPTION)

    @model_validator(mode="after")
    def _one_query(self) -> SearchBody:
        try:
            self.check_query()
        except InputError as error:
            raise ValueError(str(error)) from None
        return self

    @property
    def cost(self) -> int:
        """Number of plain searches that this one is as much work as."""
        terms = max(1, len(self.all or ()) + len(self.not_ or ()))
        return terms * (_EXHAUSTIVE_COST if self.candidates == "exhaustive" else 1)

    def options(self) -> SearchOptions:
        given = self.model_fields_set & _OPTIONS
        if not given:
            return _DEFAULTS
        fields = vars(self)
        return SearchOptions(**{name: fields[name] for name in given})


async def read_search_body(request: Request, service: ServiceState) -> SearchBody:
    """Read a search request, JSON or multipart.

    Only in JSON is the text "10" no number: a form has texts only.
    """
    body = await read_body(request, service, json_fields=_JSON_FIELDS)
    validate, strict = SearchBody.model_validate, body.kind == "json"
    try:
        return await run_sized(service, body.num_bytes, validate, body.fields, strict=strict)
    except ValidationError as error:
        raise invalid_input(error) from None


SEARCH_REQUEST_DOCS = request_docs(SearchBody.model_json_schema(), form_title="SearchForm")


async def run_search(service: ServiceState, search: SearchRequest, target: Target) -> Answered:
    """Let a worker answer one query, and count it; cancelling it withdraws the query."""
    query, options = query_of(search), search.options()
    # Checked before the query waits for a worker and is sent to the worker's process.
    most = service.settings.max_text_chars
    if isinstance(query, TextQuery) and len(query.text) > most:
        raise TextTooLongError(len(query.text), most, "characters")
    if options.filter:
        parse_filter(options.filter)
    job = SearchJob(query=query, target=target, options=options, received_s=time.monotonic())
    request = CURRENT_REQUEST.get()
    answered = await service.workers.search(job)
    if len(answered.body) > MAX_ANSWER_BYTES:
        raise AnswerTooLargeError
    queue = query.queue
    if request is not None:
        request.searches.append(SearchRecord(queue, job, answered))
    # In the loop's next turn, when the answer has been written.
    asyncio.get_running_loop().call_soon(service.metrics.answered, queue, answered)
    return answered


router = ServiceRouter(
    prefix="/v1/search",
    tags=["search"],
    responses=error_docs(403, 404, 408, 413, 415, 422, 429, 503),
)


def _add_route(target: Target, description: str) -> None:
    async def search(request: Request) -> Response:
        service: ServiceState = request.app.state.service
        body = await read_search_body(request, service)
        if body.all or body.candidates is not None:
            charge(request, body.cost)
        answered = await until_disconnect(request, run_search(service, body, target))
        return Response(answered.body, media_type="application/json")

    router.add_api_route(
        f"/{target}",
        search,
        methods=["POST"],
        name=f"search_{target}",
        summary=f"Search {target}",
        description=description,
        response_model=SearchAnswer,
        openapi_extra=SEARCH_REQUEST_DOCS,
    )


_add_route("images", "Find the images that fit a text, a photo or an item of the index.")
_add_route("texts", "Find the texts that fit a photo, a text or an item of the index.")


class SearchGate:
    """Hands searches to their routes, and answers 429 or 503 if a text query would be rejected.

    Searches pass neither the framework's own layers nor its look-up of routes and dependencies,
    which take as long as all else that a text query has to pass before it waits for a worker.
    They are rejected before they are read: if rejecting cost as much as reading a search, at twice
    the service's capacity rejections would occupy the processors.
    """

    def __init__(self, app: ASGIApp, workers: Workers) -> None:
        self._app = app
        self._workers = workers
        # Access control lets no other method pass.
        self._routes = {
            route.path: route for route in router.routes if isinstance(route, ServiceRoute)
        }

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        route = self._routes.get(scope["path"]) if scope["type"] == "http" else None
        if route is None:
            await self._app(scope, receive, send)
            return
        scope["route"] = route
        length = declared_length(scope)
        is_text = length is not None and length <= _TEXT_BYTES
        refusal = self._workers.refusal("text") if is_text else None
        if refusal is not None:
            response = error_response(refusal, scope["state"]["request_id"])
        else:
            request = Request(scope, receive, send)
            try:
                if scope["query_string"]:
                    route.check_address(scope)
                response = await route.endpoint(request)
            except AladinError as error:
                response = await answer_error(request, error)
        await response(scope, receive, send)
