"""The evidence for a score in numbers: each word of a text against every region of a photo."""

from __future__ import annotations

from fastapi import Request

from aladin_service.http.bodies import request_docs
from aladin_service.http.error_responses import error_docs
from aladin_service.http.router import ServiceRouter
from aladin_service.http.routes.pictures import (
    EXPLAIN_SCHEMA,
    ExplainedBody,
    ExplainedBox,
    ExplainedId,
    ExplainedQueryId,
    ExplainedText,
    pair_query,
)
from aladin_service.http.shared_state import Service, ServiceState, until_disconnect
from aladin_service.search.answers import WordMapsAnswer
from aladin_service.work.jobs import MapEvidence

router = ServiceRouter(prefix="/v1", tags=["search"])


@router.get(
    "/explain", summary="Map the evidence for a hit", responses=error_docs(404, 413, 422, 429, 503)
)
async def map_evidence(
    request: Request,
    service: Service,
    id: ExplainedId,
    box: ExplainedBox,
    text: ExplainedText = None,
    query_id: ExplainedQueryId = None,
) -> WordMapsAnswer:
    """Compare each word of a text with every region of a photo, or each region in a box.

    The tokens of a word are joined: its numbers are their sums. The words' scores add up to the
    alignment score. With a box of a photo and another photo, the regions inside the box are
    compared in place of words.
    """
    return await _map(request, service, MapEvidence(pair_query(text, query_id, box), id))


@router.post(
    "/explain",
    summary="Map the evidence for an uploaded photo",
    openapi_extra=request_docs(EXPLAIN_SCHEMA, form_title="ExplainForm"),
    responses=error_docs(403, 404, 408, 413, 415, 422, 429, 503),
)
async def map_evidence_of_photo(
    request: Request, body: ExplainedBody, service: Service
) -> WordMapsAnswer:
    """Compare a text of the index with a photo that is not in it, or a photo with a part of it."""
    return await _map(request, service, MapEvidence(body.query(), body.id))


async def _map(request: Request, service: ServiceState, job: MapEvidence) -> WordMapsAnswer:
    return await until_disconnect(request, service.workers.call(job))
