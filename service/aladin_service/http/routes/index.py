"""The index: its contents, its state and its slowest queries."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Annotated, Literal

from fastapi import Query
from pydantic import BaseModel, Field

from aladin_index.search.exhaustive import MAX_ITEMS
from aladin_index.search.results import TookMs
from aladin_service.http.error_responses import error_docs, without_paths
from aladin_service.http.index_state import IndexStateAnswer, build_state
from aladin_service.http.router import ServiceRouter
from aladin_service.http.shared_state import Service
from aladin_service.observe.slow_queries import Kind, SlowQueries, SlowQuery
from aladin_service.search.answers import LeftOutInfo, LiveIndexInfo
from aladin_service.work.jobs import DescribeIndex
from aladin_service.work.report_jobs import ReportIndex

router = ServiceRouter(prefix="/v1/index", tags=["index"])

Offset = Annotated[
    int, Query(ge=0, description="Skipped items to omit from the start of the list.")
]
Limit = Annotated[
    int, Query(ge=0, le=200, description="Maximum number of skipped items listed per collection.")
]


@router.get("", summary="Describe the index", responses=error_docs(429, 503))
async def get_index(service: Service) -> LiveIndexInfo:
    """Describe the live generation, including additions and deletions since it was built."""
    state = await service.workers.call(DescribeIndex())
    info = LiveIndexInfo.model_validate(state.manifest)
    info.alignment_trained = state.alignment_trained
    info.untrained = state.untrained
    if state.left_out is not None:
        info.left_out = LeftOutInfo.model_validate(state.left_out)
        for group in info.left_out.reasons:
            group.reason = without_paths(group.reason)
    for target, count in state.counts.items():
        side = info.images if target == "images" else info.texts
        assert side is not None  # counted because it is there
        side.count = count
        side.takes_all = count <= MAX_ITEMS and side.token_count > 0 and not state.in_engine
    if info.calibration is not None:
        info.calibration.fitted_photos_indexed = state.manifest.fitted_photos_indexed
    return info


@router.get("/state", summary="Report the state of the index", responses=error_docs(422, 429, 503))
async def get_index_state(
    service: Service, offset: Offset = 0, limit: Limit = 20
) -> IndexStateAnswer:
    """Return the counts, the history, the measurements, and the skipped items with reasons."""
    return build_state(await service.workers.call(ReportIndex(offset, limit)))


class SlowQueryAnswer(BaseModel):
    """A query, its parameters, and where its time went."""

    at: datetime = Field(description="Time of its arrival.")
    request_id: str | None
    kind: Kind = Field(description="parts: a query of several parts.")
    asked: str | None = Field(
        description="Its text, truncated, or the item's id; of several parts their roles with them."
    )
    photo_bytes: int | None
    target: str
    k: int
    offset: int
    candidates: int | Literal["all"] | None = Field(
        description="Requested number; null: the default of the index."
    )
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
