"""The slowest queries of the last hour."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Literal

from fastapi import APIRouter
from pydantic import BaseModel, Field

from aladin_index.search.results import TookMs
from aladin_service.http.state import Service
from aladin_service.observe.slow_queries import SlowQueries, SlowQuery

router = APIRouter(prefix="/v1/index", tags=["index"])


class SlowQueryAnswer(BaseModel):
    """A query, its parameters, and where its time went."""

    at: datetime = Field(description="Time of its arrival.")
    request_id: str | None
    kind: Literal["text", "photo", "regions", "item", "embedding"]
    asked: str | None = Field(description="Its text, truncated, or the item's id.")
    photo_bytes: int | None
    target: str
    k: int
    offset: int
    candidates: int | None = Field(description="Requested number; null: the index's default.")
    filtered: bool
    explain: bool
    status: int = Field(description="499: the client disconnected before the answer.")
    total_ms: float
    queue_ms: float | None = Field(description="Time until a worker took it, a part of the total.")
    took_ms: TookMs | None = Field(description="Null if it was not answered.")
    batch: int | None = Field(description="Queries that were encoded together with it.")
    cached: bool = Field(description="Whether its encoding was cached.")
    degraded: list[str]


class SlowQueriesAnswer(BaseModel):
    """The slowest queries of about the last hour, slowest first."""

    limit: int = Field(description="Maximum number of queries listed; 0: disabled.")
    since: datetime = Field(description="Earlier queries are discarded.")
    queries: list[SlowQueryAnswer]


@router.get("/slow-queries", summary="List the slowest queries")
async def get_slow_queries(service: Service) -> SlowQueriesAnswer:
    """Return the slowest queries of about the last hour, from all workers."""
    return build_slow_queries(service.slow_queries, datetime.now(UTC))


def build_slow_queries(kept: SlowQueries, now: datetime) -> SlowQueriesAnswer:
    """Convert the recorded queries into the response."""
    return SlowQueriesAnswer(
        limit=kept.limit,
        since=now - timedelta(seconds=kept.window_s),
        queries=[_query(query) for query in kept.slowest()],
    )


def _query(query: SlowQuery) -> SlowQueryAnswer:
    fields = query._asdict()
    at = datetime.fromtimestamp(fields.pop("at_s"), UTC)
    return SlowQueryAnswer(at=at, **fields)
