"""Health, readiness and metrics of the service."""

from __future__ import annotations

import asyncio
import contextlib
from typing import Literal

from fastapi import Response
from pydantic import BaseModel, Field

from aladin_network.errors import (
    AladinError,
    EngineUnavailableError,
    IndexNotReadyError,
    ShuttingDownError,
)
from aladin_service.http.error_responses import error_docs
from aladin_service.http.errors import KeysMissingError, WorkersMissingError
from aladin_service.http.router import ServiceRouter
from aladin_service.http.shared_state import Service
from aladin_service.work.health import WorkersHealth
from aladin_service.work.jobs import DescribeIndex
from aladin_service.work.workers import Workers

router = ServiceRouter(tags=["health"])

# Time for opening an index that was just published; a probe must be answered in any case.
_OPEN_S = 1.0

# Media type of the text format that every version of Prometheus reads.
_MEDIA_TYPE = "text/plain; version=0.0.4; charset=utf-8"


class Health(BaseModel):
    """The process is up."""

    status: Literal["ok"] = "ok"


class WorkersReady(BaseModel):
    """Number of configured workers, and of those that accept jobs."""

    wanted: int
    alive: int


class Readiness(BaseModel):
    """Ready: an index is live, its engine responds, all workers accept jobs, no shutdown."""

    status: Literal["ready"] = "ready"
    generation: int
    workers: WorkersReady
    refused: bool = Field(
        description="Whether a newer generation is published that is invalid; the log has the"
        " reason, which is not revealed to unauthenticated clients."
    )


@router.get("/healthz", operation_id="get_health", summary="Check that the process is up")
async def healthz() -> Health:
    """Report that the process is up, without asking a worker."""
    return Health()


@router.get(
    "/readyz",
    operation_id="get_readiness",
    summary="Check that searches are answered",
    responses=error_docs(503),
)
async def readyz(service: Service) -> Readiness:
    """Report whether searches are answered; the code of a 503 states the reason.

    It is `shutting_down`, `keys_missing`, `workers_missing`, `engine_unavailable` or
    `index_not_ready`.
    """
    if service.draining:
        raise ShuttingDownError
    if service.policy.is_locked():
        raise KeysMissingError
    health = await _health(service.workers)
    if health.alive < health.wanted:
        raise WorkersMissingError(health.alive, health.wanted)
    if health.engine == "unavailable":
        raise EngineUnavailableError("engine", "no response")
    if health.generation is None:
        why = " yet" if health.refused is None else ": the published generation is invalid"
        raise IndexNotReadyError(f"no index is live{why}")
    return Readiness(
        generation=health.generation,
        workers=WorkersReady(wanted=health.wanted, alive=health.alive),
        refused=health.refused is not None,
    )


async def _health(workers: Workers) -> WorkersHealth:
    health = workers.health()
    if health.generation is None:
        # An index is opened by the first job that needs it, which may be this one.
        with contextlib.suppress(AladinError, TimeoutError):
            async with asyncio.timeout(_OPEN_S):
                await workers.call(DescribeIndex())
        health = workers.health()
    return health


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
