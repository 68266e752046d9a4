"""The state that the routes of one application share.

Also the budget of all batch requests together, and the cancellation of work for clients that have
disconnected.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Generator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Annotated, TypeVar, cast

from fastapi import Depends, Request
from starlette.requests import ClientDisconnect

from aladin_network.errors import OverloadedError
from aladin_service.http.access.policy import AccessPolicy
from aladin_service.http.errors import ReadOnlyError
from aladin_service.http.state_metrics import StateMetrics
from aladin_service.intake.photo_fetcher import PhotoFetcher
from aladin_service.observe.metrics import Metrics
from aladin_service.observe.slow_queries import SlowQueries
from aladin_service.settings import ServiceSettings
from aladin_service.work.workers import Workers

# Requests that may be under way: each holds its queries in memory, photos too, until it is done.
_MAX_REQUESTS = 16
_RETRY_AFTER_S = 1.0


class BatchRoom:
    """Places in the waiting lines for queries of batch requests."""

    def __init__(self, places: int) -> None:
        """Have all places free.

        Args:
            places: as many as are encoded together, so that a worker that is free finds a whole
                batch, and a query that comes alone still finds the lines short.
        """
        self.places = asyncio.Semaphore(places)
        self._requests = 0

    @contextmanager
    def request(self) -> Generator[None]:
        """Hold the room of one request.

        Raises:
            OverloadedError: too many are under way.
        """
        if self._requests >= _MAX_REQUESTS:
            raise OverloadedError(_RETRY_AFTER_S)
        self._requests += 1
        try:
            yield
        finally:
            self._requests -= 1


T = TypeVar("T")


async def until_disconnect(request: Request, work: Awaitable[T]) -> T:
    """Wait for something as long as the client does.

    Args:
        request: its body has been read.
        work: cancelled when the client hangs up.

    Raises:
        ClientDisconnect: it did.
        Exception: whatever the work raises.
    """
    waiter = asyncio.current_task()
    assert waiter is not None  # a coroutine that runs is some task's
    has_hung_up = is_over = False

    def stop(listener: asyncio.Task[None]) -> None:
        nonlocal has_hung_up
        # It may be called when the work is done: a client that leaves in that moment, as the
        # answer is made, would cancel whatever its request does next.
        if not is_over and not listener.cancelled() and listener.exception() is None:
            has_hung_up = True
            waiter.cancel()

    listener = asyncio.create_task(_disconnect(request))
    listener.add_done_callback(stop)
    try:
        return await work
    except asyncio.CancelledError:
        # The server cancels as well, when it ends; that is no client's doing.
        if has_hung_up and waiter.uncancel() == 0:
            raise ClientDisconnect from None
        raise
    finally:
        is_over = True
        listener.cancel()


async def _disconnect(request: Request) -> None:
    """Return when the client has hung up."""
    while (await request.receive())["type"] != "http.disconnect":
        pass


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
