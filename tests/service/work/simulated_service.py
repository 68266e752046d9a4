"""The real queue of queries in simulated time, with workers that only wait.

A batch takes a fixed time and a time per query, and HTTP one process's time for each request, which
the workers' processors lack. A minute of load takes a second, the same on every machine.
"""

from __future__ import annotations

import asyncio
import math
import random
import selectors
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple
from unittest import mock

import numpy as np
from numpy.typing import NDArray

from aladin_index.search.results import TookMs
from aladin_network.errors import OverloadedError
from aladin_service.observe.metrics import Metrics
from aladin_service.search.job import Answered
from aladin_service.settings import ServiceSettings
from aladin_service.work.admission import QueryQueue
from tests.service.searching import search_job

_PROMISED = 8  # times the time of a lone query
_ANSWER = Answered(b"", 1, (), TookMs(decode=0, encode=0, retrieve=0, rerank=0, total=0))


@dataclass(frozen=True, kw_only=True)
class Machine:
    """A network on a machine, in seconds: HTTP's time for a query includes that of the client."""

    batch_s: float
    query_s: float
    http_s: float = 0.0007
    refusal_s: float = 0.0002
    noise: float = 0.08  # standard deviation of the logarithm of a batch's time
    workers: int = 2  # and processors

    def possible_per_s(self) -> float:
        """Return the queries per second with HTTP that leave a query time to wait half a turn."""
        bound_s = _PROMISED * (self.batch_s + self.query_s + self.http_s)
        rates = [0.0]
        for size in range(1, 33):
            took_s = self.batch_s + size * (self.query_s + self.http_s)
            if took_s * (1 + 0.5 / self.workers) <= bound_s:
                rates.append(self.workers * size / took_s)
        return max(rates)


class Outcome(NamedTuple):
    """Requests in the order of their ends: when they were to be sent, and until the answer."""

    started_s: NDArray[np.float64]
    took_s: NDArray[np.float64]
    accepted: NDArray[np.bool_]

    @property
    def per_s(self) -> float:
        seconds = (self.started_s + self.took_s).max() - self.started_s[0]
        return float(self.accepted.sum() / seconds)

    def percentile_s(self, percent: float) -> float:
        return float(np.percentile(self.took_s[self.accepted], percent))


class SimulatedService:
    """The queue of a service under simulated load; deterministic."""

    def __init__(
        self,
        machine: Machine,
        slowdown: Callable[[float], float] = lambda _: 1.0,
        seed: int = 0,
        **settings: Any,
    ) -> None:
        """`slowdown`: factor of a batch's time by the time at which it starts."""
        self.now_s = 0.0
        self._machine = machine
        self._slowdown = slowdown
        self._chance = random.Random(seed)
        self._settings = ServiceSettings(**settings)
        self._queue: QueryQueue
        self._http_s = 0.0  # all time taken by HTTP
        self._http_free_s = 0.0
        self._ended: list[tuple[float, float, bool]] = []

    def run(self, *loads: Load) -> list[Outcome]:
        loop = asyncio.SelectorEventLoop(_Skip(self))
        # The event loop takes its time from the same function.
        with mock.patch("time.monotonic", lambda: self.now_s):
            try:
                return loop.run_until_complete(self._serve(loads))
            finally:
                loop.close()

    async def _serve(self, loads: Sequence[Load]) -> list[Outcome]:
        self._queue = QueryQueue(self._settings, Metrics())
        workers = [asyncio.create_task(self._work()) for _ in range(self._machine.workers)]
        outcomes: list[Outcome] = []
        for load in loads:
            self._ended = []
            until_s = self.now_s + load.seconds
            async with asyncio.TaskGroup() as running:
                for _ in range(load.clients):
                    running.create_task(self._client(until_s))
                if load.rate_per_s:
                    await self._send(running, load.rate_per_s, until_s)
            started_s, took_s, accepted = np.array(self._ended).T
            outcomes.append(Outcome(started_s, took_s, accepted.astype(np.bool_)))
        self._queue.close()
        await asyncio.gather(*workers)
        return outcomes

    async def _work(self) -> None:
        while (batch := await self._queue.next_batch()) is not None:
            size, http_s = len(batch.work), self._http_s
            noise = math.exp(self._chance.gauss(0, self._machine.noise))
            took_s = self._machine.batch_s + self._machine.query_s * size
            await asyncio.sleep(took_s * noise * self._slowdown(self.now_s))
            # HTTP has priority over the workers, whose processors it shares.
            await asyncio.sleep((self._http_s - http_s) / self._machine.workers)
            for place in range(size):
                batch.settle(place, _ANSWER)
            batch.finish()

    async def _http(self, seconds: float) -> None:
        self._http_s += seconds
        self._http_free_s = max(self._http_free_s, self.now_s) + seconds
        await asyncio.sleep(self._http_free_s - self.now_s)

    async def _ask(self) -> int:
        """Send a request; return the seconds after which it may be sent again, or 0."""
        started_s, wait_s = self.now_s, 0
        await self._http(self._machine.http_s / 2)
        try:
            await self._queue.answer(search_job())
            await self._http(self._machine.http_s / 2)
        except OverloadedError as error:
            await self._http(self._machine.refusal_s)
            wait_s = math.ceil(error.retry_after_s)
        self._ended.append((started_s, self.now_s - started_s, wait_s == 0))
        return wait_s

    async def _client(self, until_s: float) -> None:
        while self.now_s < until_s:
            if wait_s := await self._ask():
                await asyncio.sleep(wait_s)

    async def _send(self, running: asyncio.TaskGroup, rate_per_s: float, until_s: float) -> None:
        while (pause_s := self._chance.expovariate(rate_per_s)) < until_s - self.now_s:
            await asyncio.sleep(pause_s)
            running.create_task(self._ask())


@dataclass(frozen=True, kw_only=True)
class Load:
    """Requests for some time: of clients that wait as they are told to, or a Poisson process."""

    seconds: float
    clients: int = 0
    rate_per_s: float = 0.0


class _Skip(selectors.SelectSelector):
    """Lets simulated time pass in place of waiting."""

    def __init__(self, service: SimulatedService) -> None:
        super().__init__()
        self._service = service

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        if timeout is None:
            raise AssertionError("nothing is left that could happen")
        self._service.now_s += timeout
        return super().select(0)
