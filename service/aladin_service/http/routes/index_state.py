"""History and quality of the index, and its slow queries."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Annotated

from fastapi import APIRouter, Query

from aladin_service.http.error_responses import error_docs
from aladin_service.http.index_state import IndexStateAnswer, build_state
from aladin_service.http.routes.slow_queries import SlowQueriesAnswer, build_slow_queries
from aladin_service.http.state import Service
from aladin_service.work.jobs import ReportIndex

router = APIRouter(prefix="/v1/index", tags=["index"])

Offset = Annotated[
    int, Query(ge=0, description="Skipped items to omit from the start of the list.")
]
Limit = Annotated[
    int, Query(ge=0, le=200, description="Maximum number of skipped items listed per collection.")
]


@router.get("/state", summary="Report the state of the index", responses=error_docs(422, 429, 503))
async def get_index_state(
    service: Service, offset: Offset = 0, limit: Limit = 20
) -> IndexStateAnswer:
    """Return the counts, the history, the measurements, and the skipped items with reasons."""
    return build_state(await service.workers.call(ReportIndex(offset, limit)))


@router.get("/slow-queries", summary="List the slowest queries")
async def get_slow_queries(service: Service) -> SlowQueriesAnswer:
    """Return the slowest queries of about the last hour, from all workers."""
    return build_slow_queries(service.slow_queries, datetime.now(UTC))
