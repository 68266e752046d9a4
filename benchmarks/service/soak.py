"""Serves an index at 70 % of its capacity for a long time, and checks for memory growth.

    python -m benchmarks.service.soak --minutes 60 [--index INDEX] [--workers N] [--json] [--quick]

A separate process serves a copy of the index. Its capacity for the mixed traffic of
`benchmarks.service.soak_traffic` is measured first, by clients that send requests without a pause.
Then requests are sent at random times, 70 % of that number per second: searches by text, photo and
item, batches, evidence, thumbnails, additions and deletions, invalid requests, and clients that
disconnect. A line on stderr reports the progress every minute.

rss_ratio        memory at the end, divided by that after the first five minutes, or after a third
                 of a shorter soak; medians of one minute each. Memory of all processes of the
                 service, with a page that several of them map counted once (PSS)
anonymous_ratio  the same without the pages of files: the memory that the processes allocated
errors           responses with an unexpected status, 5xx for example, and failed connections
rejected         requests answered with 429; random times bring some of them close together
"""

from __future__ import annotations

import asyncio
import shutil
import statistics
import sys
import tempfile
import time
from collections import Counter
from dataclasses import asdict, dataclass, field
from pathlib import Path

import numpy as np

from benchmarks.lib.output import figures_parser, print_figures
from benchmarks.lib.served_index import find_served_index, read_queries
from benchmarks.lib.service_process import Memory, ServiceProcess
from benchmarks.service.http_connection import ConnectionFailedError, ConnectionPool
from benchmarks.service.load_client import ClosedLoop, run_load
from benchmarks.service.soak_traffic import SoakTraffic, Step

_LOAD = 0.7
_WARM_S, _SETTLE_SHARE = 300.0, 1 / 3
_QUICK_S = 4.0
_CAPACITY_CLIENTS, _CAPACITY_S, _QUICK_CAPACITY_S = 8, 15.0, 1.0
_CAPACITY_STEPS = 2000
_LOOKS = 6  # memory samples per minute
_FAULTS_KEPT = 20


@dataclass(kw_only=True)
class Minute:
    """Figures of one minute, or of one memory sample if that takes longer."""

    minute: int
    requests: int
    rejected: int
    errors: int
    p50_ms: float
    p99_ms: float
    pss_bytes: int
    anonymous_bytes: int


@dataclass(kw_only=True)
class Figures:
    """Measured values; see the docstring of the module."""

    index: str
    minutes: float
    workers: int
    capacity_per_s: float
    rate_per_s: float
    requests: int = 0
    rejected: int = 0
    errors: int = 0
    rss_ratio: float = 0.0
    anonymous_ratio: float = 0.0
    rss_start_bytes: int = 0
    rss_end_bytes: int = 0
    p50_ms: float = 0.0
    p99_ms: float = 0.0
    statuses: dict[str, dict[str, int]] = field(default_factory=dict[str, dict[str, int]])
    faults: list[str] = field(default_factory=list[str])
    by_minute: list[Minute] = field(default_factory=list[Minute])


class _Users:
    """Execute steps and record their outcomes."""

    def __init__(self, url: str) -> None:
        self._address = ("127.0.0.1", int(url.rpartition(":")[2]))
        self._connections = ConnectionPool(*self._address)
        self.statuses: Counter[tuple[str, int]] = Counter()
        self.latencies_ms: list[float] = []
        self.errors = 0
        self.faults: list[str] = []

    @property
    def rejected(self) -> int:
        """Number of steps that were answered with 429."""
        return sum(count for (_, status), count in self.statuses.items() if status == 429)

    async def do(self, step: Step, planned_s: float) -> None:
        """Execute a step.

        Args:
            step: Step to execute.
            planned_s: Planned start, by `time.perf_counter`.
        """
        if step.hang_up:
            await self._hang_up(step)
            return
        try:
            answer = await self._connections.exchange(step.request)
        except ConnectionFailedError as error:
            self.statuses[step.kind, 0] += 1
            self._fault(f"{step.kind}: {error}")
            return
        self.latencies_ms.append(1000 * (time.perf_counter() - planned_s))
        self.statuses[step.kind, answer.status] += 1
        if answer.status not in step.expected and answer.status != 429:
            self._fault(f"{step.kind}: {answer.status} {answer.body[:200]!r}")

    async def _hang_up(self, step: Step) -> None:
        """Send an incomplete request, and disconnect before its response."""
        try:
            _, writer = await asyncio.open_connection(*self._address)
            writer.write(step.request)
            await writer.drain()
            await asyncio.sleep(0.002)
            writer.close()
        except OSError as error:
            self._fault(f"{step.kind}: {error}")
        self.statuses[step.kind, 0] += 1

    def close(self) -> None:
        """Close the connections."""
        self._connections.close()

    def _fault(self, what: str) -> None:
        self.errors += 1
        if len(self.faults) < _FAULTS_KEPT:
            self.faults.append(what)


def soak(index: Path, seconds: float, workers: int = 1, quick: bool = False) -> Figures:
    """Serve a copy of an index under load.

    Args:
        index: Index to copy, because the load adds items.
        seconds: Seconds of load, without the measurement of the capacity.
        workers: Number of processes that encode and search; if 1, threads are used.
        quick: Measure the capacity for less time.
    """
    with tempfile.TemporaryDirectory() as folder:
        copied = Path(folder) / "index"
        shutil.copytree(index, copied)
        traffic = SoakTraffic(read_queries(copied))
        arguments = ["--workers", str(workers)]
        # The mapped index is in memory from the start, so its pages do not count as growth.
        with ServiceProcess(copied, ["--warm", *arguments]) as service:
            capacity = _measure_capacity(service.url, traffic, quick)
            figures = Figures(
                index=str(index),
                minutes=seconds / 60,
                workers=workers,
                capacity_per_s=capacity,
                rate_per_s=_LOAD * capacity,
            )
            asyncio.run(_load(service, traffic, seconds, figures))
    return figures


def _measure_capacity(url: str, traffic: SoakTraffic, quick: bool) -> float:
    """Return the maximum rate per second of steps that only read."""
    steps = [traffic.step(only_reading=True) for _ in range(_CAPACITY_STEPS)]
    seconds = _QUICK_CAPACITY_S if quick else _CAPACITY_S
    requests = [step.request for step in steps]
    result = run_load(ClosedLoop(url, requests, seconds, clients=_CAPACITY_CLIENTS))
    answered = (result.status > 0) & (result.status != 429)
    return float(answered.sum() / result.ended_s.max())


async def _load(
    service: ServiceProcess, traffic: SoakTraffic, seconds: float, figures: Figures
) -> None:
    users = _Users(service.url)
    random = np.random.default_rng(0)
    sample_s = min(60.0, seconds / 6)
    warm_s = min(_WARM_S, seconds * _SETTLE_SHARE)
    start_s = time.perf_counter()
    watch = asyncio.create_task(_watch(service, users, sample_s, seconds, figures))
    async with asyncio.TaskGroup() as running:
        planned_s = start_s
        while planned_s < start_s + seconds:
            early_s = planned_s - time.perf_counter()
            if early_s > 0:
                await asyncio.sleep(early_s)
            running.create_task(users.do(traffic.step(), planned_s))
            planned_s += float(random.exponential(1 / figures.rate_per_s))
    await watch
    users.close()
    figures.rejected, figures.errors, figures.faults = users.rejected, users.errors, users.faults
    figures.requests = users.statuses.total()
    for (kind, status), count in sorted(users.statuses.items()):
        figures.statuses.setdefault(kind, {})[str(status) if status else "none"] = count
    figures.p50_ms = statistics.median(each.p50_ms for each in figures.by_minute)
    figures.p99_ms = statistics.median(each.p99_ms for each in figures.by_minute)
    first = figures.by_minute[min(round(warm_s / sample_s), len(figures.by_minute) - 1)]
    last = figures.by_minute[-1]
    figures.rss_start_bytes, figures.rss_end_bytes = first.pss_bytes, last.pss_bytes
    figures.rss_ratio = last.pss_bytes / first.pss_bytes
    figures.anonymous_ratio = last.anonymous_bytes / first.anonymous_bytes


async def _watch(
    service: ServiceProcess, users: _Users, sample_s: float, seconds: float, figures: Figures
) -> None:
    """Record and print the figures of each minute."""
    before: Counter[str] = Counter()
    next_s = time.perf_counter()
    for minute in range(round(seconds / sample_s)):
        memory: list[Memory] = []
        for _ in range(_LOOKS):
            next_s += sample_s / _LOOKS
            await asyncio.sleep(max(0.0, next_s - time.perf_counter()))
            memory.append(await asyncio.to_thread(service.memory))
        now = Counter(requests=users.statuses.total(), rejected=users.rejected, errors=users.errors)
        took_ms, users.latencies_ms = np.array(users.latencies_ms or [np.nan]), []
        line = Minute(
            minute=minute + 1,
            requests=now["requests"] - before["requests"],
            rejected=now["rejected"] - before["rejected"],
            errors=now["errors"] - before["errors"],
            p50_ms=float(np.percentile(took_ms, 50)),
            p99_ms=float(np.percentile(took_ms, 99)),
            pss_bytes=round(statistics.median(each.pss for each in memory)),
            anonymous_bytes=round(statistics.median(each.anonymous for each in memory)),
        )
        before = now
        figures.by_minute.append(line)
        print(_minute_text(line), file=sys.stderr, flush=True)


def _minute_text(line: Minute) -> str:
    return (
        f"{line.minute:3d}  {line.requests:6d} requests  {line.rejected:4d} rejected  "
        f"{line.errors:3d} errors  p50 {line.p50_ms:6.1f} ms  p99 {line.p99_ms:7.1f} ms  "
        f"memory {line.pss_bytes / 2**20:7.1f} MiB, "
        f"anonymous {line.anonymous_bytes / 2**20:7.1f} MiB"
    )


def main() -> None:
    """Run the measurements, and print a table or JSON."""
    parser = figures_parser(__doc__, f"{_QUICK_S:g} s, with a smaller index")
    parser.add_argument("--minutes", type=float, default=60.0)
    parser.add_argument("--index", type=Path, help="index to serve; default: a synthetic one")
    parser.add_argument("--workers", type=int, default=1, help="worker processes of the service")
    options = parser.parse_args()
    index = find_served_index(options.index, quick=options.quick)
    seconds = _QUICK_S if options.quick else 60 * options.minutes
    figures = asdict(soak(index, seconds, options.workers, options.quick))
    print_figures(figures, as_json=options.json)


if __name__ == "__main__":
    main()
