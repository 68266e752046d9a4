"""What the routes of one application share."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from typing import Annotated, cast

from fastapi import Depends, Request

from service.engine import SearchEngine
from service.http.errors import ReadOnlyError
from service.http.live_index import LiveIndex
from service.http.settings import ServiceSettings
from service.http.worker_pool import WorkerPool
from service.item_changes import ItemChanger


@dataclass(frozen=True)
class ServiceState:
    """The index, the threads and the limits."""

    live: LiveIndex
    pool: WorkerPool
    settings: ServiceSettings
    _opening: asyncio.Lock = field(default_factory=asyncio.Lock)

    async def refresh(self) -> None:
        """Open what has been published since; requests that come meanwhile wait for it.

        They would otherwise miss what was added to the new generation and acknowledged.
        """
        if not self.live.is_current:
            async with self._opening:  # one thread opens, the others go on with searches
                if not self.live.is_current:
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


async def live_changer(service: Service) -> ItemChanger:
    """Return what adds and removes items.

    Raises:
        ReadOnlyError: the service takes no changes.
        IndexNotReadyError: no index is live.
    """
    if service.settings.read_only:
        raise ReadOnlyError
    await service.refresh()
    return service.live.changer()


Changer = Annotated[ItemChanger, Depends(live_changer)]
