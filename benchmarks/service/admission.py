"""Admission and batches of queries in simulated time: saturation and overload of the real queue.

    python -m benchmarks.service.admission [--json] [--seconds S] [--noise N]

The queue is the service's own; its workers only wait, as long as a batch would take: a fixed time
and a time per query, as measured (`NETWORKS`). HTTP takes one process's time for each request,
which the workers' processors lack. Time is simulated, so that a minute of load takes a second and
the result is the same on every machine. What the policy makes of a network is seen here before it
is measured by `benchmarks.service.http_load`, whose figures have the same names.

saturation_ratio    queries per second of the best of several closed loops, divided by those of the
                    workers with their best batch size and without HTTP
possible_ratio      the same with HTTP, if all batches had the largest size with which a query that
                    waits half of a turn is answered within 8 times the time of a lone query
first_p99_ratio     99th percentile of the accepted queries at twice the highest rate, divided by
                    the median of one query at a time, from the first moment of the overload
overload_p99_ratio  the same, after as long an overload
"""

from __future__ import annotations

import asyncio
import math
import random
import selectors
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from typing import Any, NamedTuple
from unittest import mock

import numpy as np
from numpy.typing import NDArray

from aladin_index.search.options import SearchOptions
from aladin_index.search.results import TookMs
from aladin_network.errors import OverloadedError
from aladin_service.observe.metrics import Metrics
from aladin_service.search.job import Answered, SearchJob, TextQuery
from aladin_service.settings import ServiceSettings
from aladin_service.work.query_queue import QueryQueue
from benchmarks.lib.output import figures_parser, print_json, print_rows

_BATCHES = (1, 4, 8, 16, 32)
_CLIENTS = (8, 16, 32, 48)
_PROMISED = 8  # times the time of a lone query
_ANSWER = Answered(b"", 1, (), TookMs(decode=0, encode=0, retrieve=0, rerank=0, total=0))


@dataclass(frozen=True, kw_only=True)
class Machine:
    """A network on a machine, in seconds.

    Attributes:
        batch_s: Time of a batch, whatever its size.
        query_s: Time that each query adds to its batch.
        http_s: Time of the HTTP process and of the client for an accepted query.
        refusal_s: The same for a refused one.
        noise: Standard deviation of the logarithm of a batch's time.
        workers: Number of workers, and of processors.
    """

    batch_s: float
    query_s: float
    http_s: float = 0.0007
    refusal_s: float = 0.0002
    noise: float = 0.08
    workers: int = 2

    def best_per_s(self) -> float:
        """Return the queries per second of all workers without HTTP, with the best of all sizes."""
        return max(self.workers / (self.batch_s / size + self.query_s) for size in _BATCHES)

    def possible_per_s(self) -> float:
        """Return the queries per second with HTTP that leave a query time to wait half a turn."""
        bound_s = _PROMISED * (self.batch_s + self.query_s + self.http_s)
        rates = [0.0]
        for size in range(1, max(_BATCHES) + 1):
            took_s = self.batch_s + size * (self.query_s + self.http_s)
            if took_s * (1 + 0.5 / self.workers) <= bound_s:
                rates.append(self.workers * size / took_s)
        return max(rates)


# Assumed, near what batches of 1 to 32 captions with 100 candidates take on one core.
NETWORKS = {
    "BERT base, torch in bfloat16": Machine(batch_s=0.0125, query_s=0.0110),
    "BERT base, ONNX Runtime": Machine(batch_s=0.0050, query_s=0.0190),
    "MiniLM, torch in bfloat16": Machine(batch_s=0.0040, query_s=0.0021),
    "MiniLM, ONNX Runtime": Machine(batch_s=0.0015, query_s=0.0032),
}


class Outcome(NamedTuple):
    """Requests in the order of their ends.

    Attributes:
        started_s: (n,) times at which the requests were to be sent.
        took_s: (n,) times to their answers.
        accepted: (n,) whether they were answered, not refused.
    """

    started_s: NDArray[np.float64]
    took_s: NDArray[np.float64]
    accepted: NDArray[np.bool_]

    @property
    def per_s(self) -> float:
        """Accepted requests per second."""
        return float(
            self.accepted.sum() / ((self.started_s + self.took_s).max() - self.started_s[0])
        )

    def percentile_s(self, percent: float) -> float:
        """Return a percentile of the times of accepted requests."""
        return float(np.percentile(self.took_s[self.accepted], percent))


class SimulatedService:
    """The queue of a service under simulated load; deterministic.

    Attributes:
        now_s: Simulated time.
        batches: Sizes of all batches so far.
    """

    def __init__(
        self,
        machine: Machine,
        slowdown: Callable[[float], float] = lambda _: 1.0,
        seed: int = 0,
        **settings: Any,
    ) -> None:
        """Prepare a service.

        Args:
            machine: Times of batches and of HTTP.
            slowdown: Factor of a batch's time by the time at which it starts.
            seed: Seed of the times of batches and requests.
            settings: Settings of the service.
        """
        self.now_s = 0.0
        self.batches: list[int] = []
        self._machine = machine
        self._slowdown = slowdown
        self._chance = random.Random(seed)
        self._settings = ServiceSettings(**settings)
        self._queue: QueryQueue
        self._http_s = 0.0  # all time taken by HTTP
        self._http_free_s = 0.0
        self._ended: list[tuple[float, float, bool]] = []

    def run(self, *loads: Load) -> list[Outcome]:
        """Serve one load after another; called once."""
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
            size, http_s = len(batch.jobs), self._http_s
            self.batches.append(size)
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
        job = SearchJob(
            query=TextQuery("a"), target="images", options=SearchOptions(), received_s=self.now_s
        )
        try:
            await self._queue.answer(job)
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
    """Requests for some time: of clients in a closed loop, or of a Poisson process.

    Attributes:
        seconds: Duration.
        clients: Number of clients, each of which waits for its answer, and after a refusal as long
            as it is told to.
        rate_per_s: Rate of the Poisson process.
    """

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


@dataclass(frozen=True, kw_only=True)
class Figures:
    """Measured values of a network; see the docstring of the module."""

    network: str
    lone_ms: float
    saturation_ratio: float
    possible_ratio: float
    first_p99_ratio: float
    overload_p99_ratio: float
    overload_per_s: float
    batch: float


def measure(network: str, machine: Machine, seconds: float) -> Figures:
    """Simulate closed loops, and twice the rate of the best."""
    warm_up = Load(seconds=2, clients=8)
    alone = Load(seconds=2, clients=1)
    closed = [
        SimulatedService(machine, max_batch=16).run(
            alone, warm_up, Load(seconds=seconds, clients=clients)
        )[-1]
        for clients in _CLIENTS
    ]
    per_s = max(outcome.per_s for outcome in closed)
    service = SimulatedService(machine, max_batch=16)
    overload = Load(seconds=seconds, rate_per_s=2 * per_s)
    _, lone, first, over = service.run(warm_up, alone, overload, overload)
    lone_s = lone.percentile_s(50)
    return Figures(
        network=network,
        lone_ms=1000 * lone_s,
        saturation_ratio=per_s / machine.best_per_s(),
        possible_ratio=machine.possible_per_s() / machine.best_per_s(),
        first_p99_ratio=first.percentile_s(99) / lone_s,
        overload_p99_ratio=over.percentile_s(99) / lone_s,
        overload_per_s=over.per_s,
        batch=float(np.mean(service.batches[len(service.batches) // 2 :])),
    )


def main() -> None:
    """Simulate each network, and print a table or JSON."""
    parser = figures_parser(__doc__)
    parser.add_argument("--seconds", type=float, default=20.0, help="simulated time of each load")
    parser.add_argument("--noise", type=float, default=0.08, help="how much times of batches vary")
    options = parser.parse_args()
    rows = [
        measure(name, Machine(**{**asdict(machine), "noise": options.noise}), options.seconds)
        for name, machine in NETWORKS.items()
    ]
    if options.json:
        print_json([asdict(row) for row in rows])
        return
    names = list(asdict(rows[0]))
    print_rows(
        names,
        [
            [f"{each:.3g}" if isinstance(each, float) else each for each in asdict(row).values()]
            for row in rows
        ],
    )


if __name__ == "__main__":
    main()
