"""Description of the live index."""

from __future__ import annotations

from fastapi import APIRouter

from aladin_service.client.answers import LiveIndexInfo
from aladin_service.http.error_responses import error_docs
from aladin_service.http.state import Service
from aladin_service.work.jobs import DescribeIndex

router = APIRouter(prefix="/v1/index", tags=["index"])


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
