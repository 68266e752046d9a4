"""Counters and state of the service, for Prometheus."""

from __future__ import annotations

from fastapi import APIRouter, Response

from aladin_service.http.state import Service

router = APIRouter(tags=["health"])

# Media type of the text format that every version of Prometheus reads.
_MEDIA_TYPE = "text/plain; version=0.0.4; charset=utf-8"


@router.get(
    "/metrics",
    operation_id="get_metrics",
    summary="Read the metrics",
    response_class=Response,
    responses={200: {"content": {"text/plain": {"schema": {"type": "string"}}}}},
)
async def metrics(service: Service) -> Response:
    """Return all counts since the start, and the current state, in Prometheus' text format."""
    state = await service.state_metrics.render(
        service.workers, max_waiting=service.settings.max_waiting, draining=service.draining
    )
    return Response(service.metrics.render() + state, media_type=_MEDIA_TYPE)
