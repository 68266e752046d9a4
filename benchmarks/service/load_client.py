"""Load on an HTTP service, from a separate process that uses little of the machine.

    requests = [search_request("images", {"text": "a dog"}), ...]
    with start_load(OpenLoop(url, requests, seconds=30, rate_per_s=200)) as load:
        ...  # anything that runs meanwhile
        result = load.result()

In a closed loop each of n clients sends a request as soon as the previous one is answered, which
measures the service's capacity. In an open loop users are independent of each other: requests are
sent at the times of a Poisson process, fixed in advance, whether or not earlier ones are answered.
Latency counts from the planned time, so a service that stalls is charged for all requests planned
meanwhile.

The client shares the machine's processors with the service, so it does little work: requests are
formatted in advance, and only the status and the headers of a response are parsed.
"""

from __future__ import annotations

import asyncio
import json
import pickle
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, NamedTuple, cast
from urllib.parse import urlsplit

import numpy as np
from numpy.typing import NDArray

from benchmarks.lib.processes import ChildProcess
from benchmarks.service.http_connection import Answer, ConnectionFailedError, ConnectionPool

# Called with the position of a request in the plan and its response; returns a description of a
# fault, or None. Its module is imported by the load process, so it must not be the one that was
# started with -m.
Validator = Callable[[int, Answer], str | None]

# Number of faults kept as text; the others are only counted.
_FAULTS_KEPT = 100


def http_request(
    method: str,
    path: str,
    body: bytes = b"",
    content_type: str = "application/json",
    headers: Mapping[str, str] | None = None,
) -> bytes:
    """Format an HTTP/1.1 request as it is sent over the wire."""
    lines = [f"{method} {path} HTTP/1.1", "Host: 127.0.0.1"]
    lines += [f"{name}: {value}" for name, value in (headers or {}).items()]
    if body or method in ("POST", "PUT"):
        lines += [f"Content-Type: {content_type}", f"Content-Length: {len(body)}"]
    return "\r\n".join([*lines, "", ""]).encode() + body


def search_request(
    target: str, fields: Mapping[str, Any], headers: Mapping[str, str] | None = None
) -> bytes:
    """Format a search request in JSON."""
    body = json.dumps(fields).encode()
    return http_request("POST", f"/v1/search/{target}", body, headers=headers)


@dataclass(frozen=True)
class ClosedLoop:
    """Clients that send a request as soon as the previous one is answered or may be retried.

    Attributes:
        url: URL of the service.
        requests: Requests to send in turn, repeatedly.
        seconds: Seconds after which no new requests are sent; pending responses are still awaited.
        clients: Number of concurrent clients.
        most: Maximum number of requests, or None for as many as the time permits.
        keep: Keep the answers.
        validate: Function that checks each answer, or None for no check.
    """

    url: str
    requests: Sequence[bytes]
    seconds: float
    clients: int = 1
    most: int | None = None
    keep: bool = False
    validate: Validator | None = None


@dataclass(frozen=True)
class OpenLoop:
    """Requests at the times of a Poisson process.

    Attributes:
        url: URL of the service.
        requests: Requests to send in turn, repeatedly.
        seconds: Seconds during which requests are sent; pending responses are still awaited.
        rate_per_s: Average number of requests per second.
        seed: Seed of the random times.
        keep: Keep the answers.
        validate: Function that checks each answer, or None for no check.
    """

    url: str
    requests: Sequence[bytes]
    seconds: float
    rate_per_s: float
    seed: int = 0
    keep: bool = False
    validate: Validator | None = None

    def moments_s(self) -> NDArray[np.float64]:
        """Return the planned times of the requests, counted from the start."""
        random = np.random.default_rng(self.seed)
        count = random.poisson(self.rate_per_s * self.seconds)
        return np.sort(random.uniform(0, self.seconds, count))


class LoadResult(NamedTuple):
    """Outcome of each request, in the order in which they were started.

    Attributes:
        request: (n,) position in the plan's requests.
        planned_s: (n,) planned time of sending, counted from the start; in a closed loop, the
            actual one.
        sent_s: (n,) time of sending.
        ended_s: (n,) time at which the response was complete.
        status: (n,) HTTP status of each response; 0 if there was none.
        retry_after: (n,) whether the response had the header Retry-After.
        answers: Response to each request, or None if there was none; empty unless responses were
            kept.
        faults: Descriptions of faults: broken connections and messages of the validator.
        fault_count: Number of faults.
        cpu_s: Processor time of the load process.
    """

    request: NDArray[np.int64]
    planned_s: NDArray[np.float64]
    sent_s: NDArray[np.float64]
    ended_s: NDArray[np.float64]
    status: NDArray[np.int64]
    retry_after: NDArray[np.bool_]
    answers: list[Answer | None]
    faults: list[str]
    fault_count: int
    cpu_s: float

    @property
    def latency_ms(self) -> NDArray[np.float64]:
        """Duration of each request from its planned time."""
        return 1000 * (self.ended_s - self.planned_s)

    @property
    def ok(self) -> NDArray[np.bool_]:
        """Mask of the successful requests."""
        return (self.status >= 200) & (self.status < 300)

    @property
    def ok_per_s(self) -> float:
        """Successful requests per second, until the last response."""
        return float(self.ok.sum() / self.ended_s.max()) if len(self.ended_s) else 0.0


class LoadProcess:
    """A process that generates load, from its creation until it is closed."""

    def __init__(self, plan: ClosedLoop | OpenLoop) -> None:
        """Start the process."""
        self._folder = tempfile.TemporaryDirectory()
        folder = Path(self._folder.name)
        self._result = folder / "result"
        (folder / "plan").write_bytes(pickle.dumps(plan))
        self._process = ChildProcess(
            [sys.executable, "-m", "benchmarks.service.load_client", folder / "plan", self._result],
            folder / "log",
            folder=Path(__file__).parents[2],
        )

    def result(self) -> LoadResult:
        """Wait for the end of the load.

        Raises:
            SystemExit: If the process fails; with its output.
        """
        if self._process.wait() != 0:
            raise SystemExit(f"the load process failed:\n{self._process.output()}")
        return cast(LoadResult, pickle.loads(self._result.read_bytes()))  # written by our process

    def __enter__(self) -> LoadProcess:
        """Return this object."""
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        """End the process if it is still running."""
        if self._process.poll() is None:
            self._process.kill()
        self._process.wait()
        self._folder.cleanup()


def start_load(plan: ClosedLoop | OpenLoop) -> LoadProcess:
    """Generate load from another process while the caller does other work."""
    return LoadProcess(plan)


def run_load(plan: ClosedLoop | OpenLoop) -> LoadResult:
    """Generate load from another process, and wait for its end."""
    with start_load(plan) as load:
        return load.result()


class _Exchanges:
    """Sends the requests of a plan and records the outcomes."""

    def __init__(self, plan: ClosedLoop | OpenLoop) -> None:
        self._plan = plan
        parts = urlsplit(plan.url)
        self._connections = ConnectionPool(parts.hostname or "127.0.0.1", parts.port or 80)
        self._rows: list[tuple[int, float, float, float, int, bool]] = []
        self._answers: list[Answer | None] = []
        self._faults: list[str] = []
        self._fault_count = 0
        self._cpu_s = time.process_time()
        self._start_s = time.perf_counter()

    def now_s(self) -> float:
        """Return the time since the start."""
        return time.perf_counter() - self._start_s

    async def exchange(self, number: int, planned_s: float | None = None) -> Answer | None:
        """Send one request.

        Args:
            number: Number of the request, counted from 0.
            planned_s: Planned time, or None for now.

        Returns:
            The response, or None if there was none.
        """
        place = number % len(self._plan.requests)
        sent_s = self.now_s()
        try:
            answer = await self._connections.exchange(self._plan.requests[place])
        except ConnectionFailedError as error:
            answer = None
            self._fault(f"request {place}: {error}")
        ended_s = self.now_s()
        status = 0 if answer is None else answer.status
        retry_after = answer is not None and answer.header(b"retry-after") is not None
        planned_s = sent_s if planned_s is None else planned_s
        self._rows.append((place, planned_s, sent_s, ended_s, status, retry_after))
        if self._plan.keep:
            self._answers.append(answer)
        if answer is not None and self._plan.validate is not None:
            wrong = self._plan.validate(place, answer)
            if wrong is not None:
                self._fault(f"request {place}: {wrong}")
        return answer

    def result(self) -> LoadResult:
        """Close the connections and return the recorded outcomes."""
        self._connections.close()
        columns = np.array(self._rows, dtype=np.float64).reshape(-1, 6)
        order = np.argsort(columns[:, 1], kind="stable")
        place, planned_s, sent_s, ended_s, status, retry_after = columns[order].T
        return LoadResult(
            request=place.astype(np.int64),
            planned_s=planned_s,
            sent_s=sent_s,
            ended_s=ended_s,
            status=status.astype(np.int64),
            retry_after=retry_after.astype(np.bool_),
            answers=[self._answers[row] for row in order] if self._plan.keep else [],
            faults=self._faults,
            fault_count=self._fault_count,
            cpu_s=time.process_time() - self._cpu_s,
        )

    def _fault(self, what: str) -> None:
        self._fault_count += 1
        if len(self._faults) < _FAULTS_KEPT:
            self._faults.append(what)


async def make_load(plan: ClosedLoop | OpenLoop) -> LoadResult:
    """Generate load from this process's event loop."""
    exchanges = _Exchanges(plan)
    if isinstance(plan, ClosedLoop):
        await _closed_loop(plan, exchanges)
    else:
        await _open_loop(plan, exchanges)
    return exchanges.result()


async def _closed_loop(plan: ClosedLoop, exchanges: _Exchanges) -> None:
    asked = 0

    async def client() -> None:
        nonlocal asked
        while exchanges.now_s() < plan.seconds and (plan.most is None or asked < plan.most):
            asked += 1
            answer = await exchanges.exchange(asked - 1)
            wait = None if answer is None else answer.header(b"retry-after")
            if wait is not None:
                await asyncio.sleep(int(wait))

    await asyncio.gather(*(client() for _ in range(plan.clients)))


async def _open_loop(plan: OpenLoop, exchanges: _Exchanges) -> None:
    async with asyncio.TaskGroup() as running:
        for number, planned_s in enumerate(plan.moments_s().tolist()):
            early_s = planned_s - exchanges.now_s()
            if early_s > 0:
                await asyncio.sleep(early_s)
            running.create_task(exchanges.exchange(number, planned_s))


def main(plan_file: Path, result_file: Path) -> None:
    """Run the load of a plan and write its result; both are pickles of trusted processes."""
    plan = cast(ClosedLoop | OpenLoop, pickle.loads(plan_file.read_bytes()))
    result_file.write_bytes(pickle.dumps(asyncio.run(make_load(plan))))


if __name__ == "__main__":
    # The plan refers to the classes of this module by its import name.
    from benchmarks.service import load_client

    load_client.main(Path(sys.argv[1]), Path(sys.argv[2]))
