"""The state that the routes of one application share.

Also the budget of all batch requests together, and the cancellation of work for clients that have
disconnected.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncGenerator, Awaitable, Generator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass, field
from typing import Annotated, TypeVar, cast

from fastapi import Depends, Request
from starlette.requests import ClientDisconnect

from aladin_network.errors import OverloadedError
from aladin_service.http.access.policy import AccessPolicy
from aladin_service.http.errors import ReadOnlyError
from aladin_service.http.state_metrics import StateMetrics
from aladin_service.observe.metrics import Metrics
from aladin_service.settings import ServiceSettings
from aladin_service.work.workers import Workers

# Number of concurrent requests: each holds its queries in memory, photos included, until it is
# done.
_MAX_REQUESTS = 16
_RETRY_AFTER_S = 1.0
# Most work ends before: nothing has to listen for its client's disconnect.
_LISTEN_AFTER_S = 0.02

T = TypeVar("T")


class Places:
    """Places that are taken one or several at a time, in the order of arrival."""

    def __init__(self, count: int) -> None:
        self._count = self._free = count
        self._waiting: deque[tuple[int, asyncio.Future[None]]] = deque()

    @asynccontextmanager
    async def take(self, needed: int) -> AsyncGenerator[None]:
        """Hold places; a request for more than there are holds all."""
        needed = min(needed, self._count)
        turn = asyncio.get_running_loop().create_future()
        self._waiting.append((needed, turn))
        self._give()
        try:
            await turn
            yield
        finally:
            if not turn.cancelled():
                self._free += needed
            self._give()

    def _give(self) -> None:
        while self._waiting and (self._waiting[0][1].done() or self._waiting[0][0] <= self._free):
            needed, turn = self._waiting.popleft()
            if not turn.done():
                self._free -= needed
                turn.set_result(None)


class BatchRoom:
    """Places in the queues for queries of batch requests, and for documents.

    Attributes:
        places: Places of all of them.
        documents: Those of the places that documents may take.
    """

    def __init__(self, places: int) -> None:
        self.places = Places(places)
        # Documents fill less: as many queries as there are places are always admitted, so half of
        # them stay free for the queries of others.
        self.documents = asyncio.Semaphore(max(1, places // 2))
        self._requests = 0

    @contextmanager
    def request(self) -> Generator[None]:
        if self._requests >= _MAX_REQUESTS:
            raise OverloadedError(_RETRY_AFTER_S)
        self._requests += 1
        try:
            yield
        finally:
            self._requests -= 1


async def until_disconnect(request: Request, work: Awaitable[T]) -> T:
    """Wait for a result for as long as the client stays connected."""
    waiter = asyncio.current_task()
    assert waiter is not None  # a coroutine that runs is some task's
    listener: asyncio.Task[None] | None = None
    has_hung_up = is_over = False

    def listen() -> None:
        nonlocal listener
        listener = asyncio.create_task(_disconnect(request))
        listener.add_done_callback(stop)

    def stop(listener: asyncio.Task[None]) -> None:
        nonlocal has_hung_up
        # The callback may run when the work is already done: a client that disconnects while the
        # response is made would otherwise cancel whatever its request does next.
        if not is_over and not listener.cancelled() and listener.exception() is None:
            has_hung_up = True
            waiter.cancel()

    timer = asyncio.get_running_loop().call_later(_LISTEN_AFTER_S, listen)
    try:
        return await work
    except asyncio.CancelledError:
        # The server also cancels when it shuts down; that is not a disconnect of a client.
        if has_hung_up and waiter.uncancel() == 0:
            raise ClientDisconnect from None
        raise
    finally:
        is_over = True
        timer.cancel()
        if listener is not None:
            listener.remove_done_callback(stop)
            listener.cancel()


async def _disconnect(request: Request) -> None:
    while (await request.receive())["type"] != "http.disconnect":
        pass


@dataclass
class ServiceState:
    """Workers, limits and metrics of the application.

    Attributes:
        workers: Workers that serve the index.
        settings: Limits of the service.
        metrics: Metrics of this application and its workers.
        policy: Access rules, which tell whether anybody can get in.
        draining: Whether the service is shutting down: it finishes accepted requests and should
            receive no new ones; set by whatever stops it, reported by ``/readyz``.
        state_metrics: Source of the figures of workers and index in ``/metrics``.
        batch_room: Limit on the places that all batch requests together may use.
        large_bodies: Semaphore by which large JSON bodies are parsed and validated one at a time.
    """

    workers: Workers
    settings: ServiceSettings
    metrics: Metrics
    policy: AccessPolicy
    draining: bool = False
    state_metrics: StateMetrics = field(default_factory=StateMetrics)
    large_bodies: asyncio.Semaphore = field(default_factory=lambda: asyncio.Semaphore(1))
    batch_room: BatchRoom = field(init=False)

    def __post_init__(self) -> None:
        self.batch_room = BatchRoom(self.settings.max_batch)


# Coroutines, although they wait for nothing: the framework runs plain functions on another thread,
# and while other threads encode, the round trip may take ten times as long as the rest.
async def service_state(request: Request) -> ServiceState:
    return cast(ServiceState, request.app.state.service)


Service = Annotated[ServiceState, Depends(service_state)]


async def writable_service(service: Service) -> ServiceState:
    """Return the application's state for a route that changes the index."""
    if service.settings.read_only:
        raise ReadOnlyError
    return service


WritableService = Annotated[ServiceState, Depends(writable_service)]
