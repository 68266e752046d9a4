"""What the routes of one application share."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, cast

from fastapi import Depends, Request

from service.engine import SearchEngine
from service.http.live_index import LiveIndex
from service.http.settings import ServiceSettings
from service.http.worker_pool import WorkerPool


@dataclass(frozen=True)
class ServiceState:
    """The index, the threads and the limits."""

    live: LiveIndex
    pool: WorkerPool
    settings: ServiceSettings

    async def refresh(self) -> None:
        """Open the index if it has been published since."""
        if not self.live.is_open and self.live.is_published:
            await self.pool.run(self.live.try_to_open)


def service_state(request: Request) -> ServiceState:
    """Return the application's state."""
    return cast(ServiceState, request.app.state.service)


Service = Annotated[ServiceState, Depends(service_state)]


async def live_engine(service: Service) -> SearchEngine:
    """Return what answers queries.

    Raises:
        IndexNotReadyError: no index is live.
    """
    await service.refresh()
    return service.live.engine()


Engine = Annotated[SearchEngine, Depends(live_engine)]
