"""Whether the process is up, and whether it can answer."""

from __future__ import annotations

import asyncio
import contextlib
from typing import Literal

from fastapi import APIRouter
from pydantic import BaseModel, Field

from aladin_network.errors import (
    AladinError,
    EngineUnavailableError,
    IndexNotReadyError,
    ShuttingDownError,
)
from aladin_service.http.error_responses import error_docs
from aladin_service.http.errors import KeysMissingError, WorkersMissingError
from aladin_service.http.state import Service
from aladin_service.work.jobs import DescribeIndex
from aladin_service.work.workers import Workers, WorkersHealth

router = APIRouter(tags=["health"])

# For an index that was just published to be opened; a probe has to be answered whatever happens.
_OPEN_S = 1.0


class Health(BaseModel):
    """The process is up."""

    status: Literal["ok"] = "ok"


class WorkersReady(BaseModel):
    """Workers that there should be, and that take jobs."""

    wanted: int
    alive: int


class Readiness(BaseModel):
    """An index is live, its engine answers, every worker takes jobs, and nothing shuts down."""

    status: Literal["ready"] = "ready"
    generation: int
    workers: WorkersReady
    refused: bool = Field(
        description="Whether a newer generation is published that is invalid; the log has the"
        " reason, which is not revealed to unauthenticated clients."
    )


@router.get("/healthz", operation_id="get_health", summary="Check that the process is up")
async def healthz() -> Health:
    """Say that the process is up; asks no worker."""
    return Health()


@router.get(
    "/readyz",
    operation_id="get_readiness",
    summary="Check that searches are answered",
    responses=error_docs(503),
)
async def readyz(service: Service) -> Readiness:
    """Say whether searches are answered; the code of a 503 tells why not.

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
        # An index is opened by the first job that needs it, and this may be the first.
        with contextlib.suppress(AladinError, TimeoutError):
            async with asyncio.timeout(_OPEN_S):
                await workers.call(DescribeIndex())
        health = workers.health()
    return health
