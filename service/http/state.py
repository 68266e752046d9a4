"""What the routes of one application share."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from typing import Annotated, cast

from fastapi import Depends, Request

from service.http.access.policy import AccessPolicy
from service.http.batch_room import BatchRoom
from service.http.errors import ReadOnlyError
from service.http.state_metrics import StateMetrics
from service.intake.photo_fetcher import PhotoFetcher
from service.metrics import Metrics
from service.settings import ServiceSettings
from service.slow_queries import SlowQueries
from service.work.workers import Workers


@dataclass
class ServiceState:
    """The workers, the limits and what is counted.

    Attributes:
        workers: of the index.
        settings: limits.
        metrics: where this application and its workers count.
        fetcher: of photos that requests name by their URL.
        policy: Access rules, which tell whether anybody can get in.
        draining: whether the service finishes what it took and is to be sent nothing more; set by
            whoever ends it, told by ``/readyz``.
        state_metrics: tells ``/metrics`` how the workers and the index are.
        batch_room: what batch requests, all together, may take up.
        slow_queries: of the workers, the slowest of late.
        large_bodies: turns of large JSON bodies to be parsed and validated, one at a time.
    """

    workers: Workers
    settings: ServiceSettings
    metrics: Metrics
    fetcher: PhotoFetcher
    policy: AccessPolicy
    draining: bool = False
    state_metrics: StateMetrics = field(default_factory=StateMetrics)
    large_bodies: asyncio.Semaphore = field(default_factory=lambda: asyncio.Semaphore(1))
    batch_room: BatchRoom = field(init=False)
    slow_queries: SlowQueries = field(init=False)

    def __post_init__(self) -> None:
        """Make what the settings say the size of."""
        self.batch_room = BatchRoom(self.settings.max_batch)
        self.slow_queries = SlowQueries(self.settings.slow_queries)


# Coroutines, though they wait for nothing: the framework runs plain functions on another thread,
# and while others encode, a way there and back may take ten times as long as the rest.
async def service_state(request: Request) -> ServiceState:
    """Return the application's state."""
    return cast(ServiceState, request.app.state.service)


Service = Annotated[ServiceState, Depends(service_state)]


async def writable_service(service: Service) -> ServiceState:
    """Return the application's state to a route that changes the index.

    Raises:
        ReadOnlyError: the service takes no changes.
    """
    if service.settings.read_only:
        raise ReadOnlyError
    return service


WritableService = Annotated[ServiceState, Depends(writable_service)]
