"""The index: its contents and its model."""

from __future__ import annotations

from datetime import UTC, datetime

from aladin_index.search.exhaustive import MAX_ITEMS
from aladin_service.http.error_responses import error_docs, without_paths
from aladin_service.http.router import ServiceRouter
from aladin_service.http.shared_state import Service
from aladin_service.search.answers import LiveIndexInfo, SkippedInfo
from aladin_service.work.jobs import DescribeIndex

router = ServiceRouter(prefix="/v1/index", tags=["index"])


@router.get("", summary="Describe the index", responses=error_docs(429, 503))
async def get_index(service: Service) -> LiveIndexInfo:
    """Describe the live generation, including additions and deletions since it was built."""
    state = await service.workers.call(DescribeIndex())
    info = LiveIndexInfo.model_validate(state.manifest)
    info.alignment_trained = state.alignment_trained
    info.untrained = state.untrained
    if state.changed_at_s is not None:
        info.changed_at = datetime.fromtimestamp(state.changed_at_s, UTC)
    if state.skipped is not None:
        info.skipped = SkippedInfo.model_validate(state.skipped)
        for group in info.skipped.reasons:
            group.reason = without_paths(group.reason)
    for target, count in state.counts.items():
        collection = info.images if target == "images" else info.texts
        assert collection is not None  # counted because it is there
        collection.count = count
        collection.takes_all = (
            count <= MAX_ITEMS and collection.token_count > 0 and not state.in_engine
        )
    return info
