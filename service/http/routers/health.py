"""Whether the process is up, and whether it can answer."""

from __future__ import annotations

from typing import Literal

from fastapi import APIRouter
from pydantic import BaseModel

from service.http.errors import error_docs
from service.http.state import Service
from service.work.index_jobs import DescribeIndex

router = APIRouter(tags=["health"])


class Health(BaseModel):
    """The process is up."""

    status: Literal["ok"] = "ok"


class Readiness(BaseModel):
    """An index is live."""

    status: Literal["ready"] = "ready"
    generation: int


@router.get("/healthz")
async def healthz() -> Health:
    """Say that the process is up."""
    return Health()


@router.get("/readyz", responses=error_docs(503))
async def readyz(service: Service) -> Readiness:
    """Say whether an index is live."""
    generation = service.workers.health().generation
    if generation is None:
        generation = (await service.workers.call(DescribeIndex())).manifest.generation
    return Readiness(generation=generation)
