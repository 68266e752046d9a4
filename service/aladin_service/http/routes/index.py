"""The index: its contents and its model."""

from __future__ import annotations

from dataclasses import replace

from fastapi import Response
from pydantic import TypeAdapter

from aladin_index.facts import IndexFacts
from aladin_service.http.error_responses import error_docs, without_paths
from aladin_service.http.router import ServiceRouter
from aladin_service.http.shared_state import Service
from aladin_service.work.jobs import DescribeIndex

router = ServiceRouter(prefix="/v1/index", tags=["index"])

# Writes what anybody may know, whatever else is known where the index is.
_FACTS = TypeAdapter(IndexFacts)


@router.get(
    "", summary="Describe the index", response_model=IndexFacts, responses=error_docs(429, 503)
)
async def get_index(service: Service) -> Response:
    """Describe the live generation, including additions and deletions since it was built."""
    facts: IndexFacts = await service.workers.call(DescribeIndex())
    if facts.skipped is not None:
        reasons = [
            replace(each, reason=without_paths(each.reason)) for each in facts.skipped.reasons
        ]
        facts = replace(facts, skipped=replace(facts.skipped, reasons=reasons))
    return Response(_FACTS.dump_json(facts), media_type="application/json")
