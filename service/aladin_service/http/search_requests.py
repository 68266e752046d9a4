"""From the body of a search request to a query and its options.

From a search request to its answer; the way of every route that searches.
"""

from __future__ import annotations

import asyncio
import time
from typing import Annotated, Any

from fastapi import Depends, Request
from pydantic import ConfigDict, Field, ValidationError, model_validator

from aladin_index.items.filters import parse_filter
from aladin_network.errors import OverloadedError, TextTooLongError
from aladin_service.http.bodies import StrictBody, Upload, read_body, request_docs, run_sized
from aladin_service.http.error_responses import (
    HUNG_UP,
    failure_of,
    invalid_input,
)
from aladin_service.http.state import Service, ServiceState
from aladin_service.intake.photo_fetcher import MAX_URL_CHARS, PhotoFetcher
from aladin_service.observe.logs import CURRENT_REQUEST, SearchRecord
from aladin_service.queries import (
    ItemQuery,
    PhotoQuery,
    Query,
    RegionsQuery,
    SearchOptions,
    Target,
    TextQuery,
)
from aladin_service.search.job import Answered, SearchJob
from aladin_service.work.query_queue import queue_of

_QUERIES = ("text", "image", "id", "image_url", "regions")

REGIONS_DESCRIPTION = (
    "Regions that a detector found in a photo, for an index whose model reads regions: an npz file"
    " with `vectors` (regions x numbers), `boxes` (in fractions of the photo, or in pixels with"
    " `image_size`) and perhaps `labels` and `detector`."
)

MAX_K = 1000
MAX_OFFSET = 10_000
MAX_CANDIDATES = 10_000
MAX_TIMEOUT_MS = 600_000
# Of an item that is asked for: builds take ids of any length, such as paths and URLs.
MAX_ASKED_ID_CHARS = 4096


class SearchBody(StrictBody):
    """What to search for, exactly one of the first five fields, and the options."""

    model_config = ConfigDict(
        json_schema_extra={"examples": [{"text": "two dogs in the snow", "k": 5}]},
    )

    text: str | None = Field(default=None, description="Words to search for.")
    image: Upload | None = Field(default=None, description="A picture file.")
    id: str | None = Field(
        default=None,
        max_length=MAX_ASKED_ID_CHARS,
        description="An item of the index; it is not among its own hits.",
    )
    image_url: str | None = Field(
        default=None,
        max_length=MAX_URL_CHARS,
        description="Where a picture file is, on a host that the service fetches photos from;"
        " there is none unless it was set up so.",
    )
    regions: Upload | None = Field(default=None, description=REGIONS_DESCRIPTION)
    k: int = Field(default=10, ge=1, le=MAX_K, description="Hits wanted.")
    offset: int = Field(default=0, ge=0, le=MAX_OFFSET, description="Hits to skip.")
    candidates: int | None = Field(
        default=None,
        ge=1,
        le=MAX_CANDIDATES,
        description="Size of the first stage's result; null takes the index's tuned value.",
    )
    rerank: bool = Field(default=True, description="Order the candidates by the second stage.")
    fusion: float | None = Field(
        default=None,
        ge=0,
        le=1,
        description="Weight of the alignment score; null takes the fitted one, 1 is the papers'.",
    )
    explain: bool = Field(default=False, description="Say which word matched which region.")
    filter: dict[str, Any] = Field(
        default_factory=dict[str, Any],
        description="Metadata that a hit must have. By field a value, a list of values of which one"
        " will do, or comparisons: eq, ne, in, nin, gt, gte, lt, lte, exists. Filters are combined"
        " by and, or (lists of filters) and not.",
        examples=[{"or": [{"city": "Pisa"}, {"year": {"gte": 2020}}]}],
    )
    timeout_ms: float | None = Field(
        default=None,
        gt=0,
        le=MAX_TIMEOUT_MS,
        description="Time for the answer; where it does not allow the second stage, the first"
        " stage's order comes back, and `degraded` says rerank_timeout.",
    )
    min_probability: float | None = Field(
        default=None,
        ge=0,
        le=1,
        description="Leave out hits that are less likely to belong to the query. `offset` and `k`"
        " count before that, so a page may have fewer hits, and none. The index has to be"
        " calibrated. Where the answer's `probabilities_reliable` is false, nothing is left out,"
        " and `degraded` names min_probability.",
    )

    @model_validator(mode="after")
    def _one_query(self) -> SearchBody:
        given = [name for name in _QUERIES if getattr(self, name) is not None]
        if len(given) != 1:
            got = " and ".join(given) or "none"
            raise ValueError(f"expected exactly one of {', '.join(_QUERIES)}, got {got}")
        return self

    async def query(self, fetcher: PhotoFetcher) -> Query:
        """Return what to search for.

        Args:
            fetcher: of the photo, if it is given by its URL.

        Raises:
            AladinError: as `PhotoFetcher.fetch`.
        """
        if self.text is not None:
            return TextQuery(self.text)
        if self.image is not None:
            return PhotoQuery(self.image)
        if self.image_url is not None:
            return PhotoQuery(*await fetcher.fetch([self.image_url]), source="image_url")
        if self.regions is not None:
            return RegionsQuery(self.regions)
        assert self.id is not None  # by _one_query
        return ItemQuery(self.id)

    def options(self) -> SearchOptions:
        """Return how to search."""
        return SearchOptions(
            k=self.k,
            offset=self.offset,
            candidates=self.candidates,
            rerank=self.rerank,
            fusion=self.fusion,
            explain=self.explain,
            filter=self.filter,
            timeout_ms=self.timeout_ms,
            min_probability=self.min_probability,
        )


async def read_search_body(request: Request, service: Service) -> SearchBody:
    """Read a search request, JSON or multipart.

    Raises:
        ContentTypeError: it is neither.
        InputError: it is broken, or a field is unknown, missing or impossible.
        BodyTooLargeError: it is over the limit (by the middleware, while it is read).
    """
    body = await read_body(request, service, json_fields=("filter",))
    validate, strict = SearchBody.model_validate, body.kind == "json"
    try:
        # Strict: the text "10" is no number in JSON.
        return await run_sized(service, body.num_bytes, validate, body.fields, strict=strict)
    except ValidationError as error:
        raise invalid_input(error) from None


SearchRequest = Annotated[SearchBody, Depends(read_search_body)]

SEARCH_REQUEST_DOCS = request_docs(SearchBody.model_json_schema(), form_title="SearchForm")


async def run_search(
    service: ServiceState, query: Query, target: Target, options: SearchOptions
) -> Answered:
    """Have a worker answer one query, and count it; cancelling it withdraws the query.

    Raises:
        InputError: the text is too long, or the filter too large or none.
        AladinError: as `Workers.search`.
    """
    # Before it waits for a worker, and is sent to its process.
    most = service.settings.max_text_chars
    if isinstance(query, TextQuery) and len(query.text) > most:
        raise TextTooLongError(len(query.text), most, "characters")
    parse_filter(options.filter)
    job = SearchJob(query=query, target=target, options=options, received_s=time.monotonic())
    request = CURRENT_REQUEST.get()
    request_id = None if request is None else request.request_id
    try:
        answered = await service.workers.search(job)
    except OverloadedError:
        raise  # it was not taken, so nothing of it was slow
    except Exception as error:
        service.slow_queries.failed(job, failure_of(error).status, request_id)
        raise
    except asyncio.CancelledError:
        service.slow_queries.failed(job, HUNG_UP, request_id)
        raise
    service.slow_queries.answered(job, answered, request_id)
    queue = queue_of(query)
    service.metrics.answered(queue, answered)
    if request is not None:
        request.searches.append(SearchRecord(queue, job, answered))
    return answered
