"""Description of the live index: its model and counts, its history and its quality."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Query

from aladin_service.client.answers import LiveIndexInfo
from aladin_service.http.error_responses import error_docs
from aladin_service.http.index_state import IndexStateAnswer, build_state
from aladin_service.http.state import Service
from aladin_service.work.jobs import DescribeIndex, ReportIndex

router = APIRouter(prefix="/v1/index", tags=["index"])

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
    for target, count in state.counts.items():
        side = info.images if target == "images" else info.texts
        assert side is not None  # counted because it is there
        side.count = count
    if info.calibration is not None:
        info.calibration.fitted_photos_indexed = state.manifest.fitted_photos_indexed
    return info


@router.get("/state", summary="Report the state of the index", responses=error_docs(422, 429, 503))
async def get_index_state(
    service: Service, offset: Offset = 0, limit: Limit = 20
) -> IndexStateAnswer:
    """Return the counts, the history, the measurements, and the skipped items with reasons."""
    return build_state(await service.workers.call(ReportIndex(offset, limit)))
