"""The service's current state for Prometheus, collected on every scrape.

Memory of the processes is read from ``/proc``.
"""

from __future__ import annotations

import asyncio
import os
import platform
from collections.abc import Iterator
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import NamedTuple

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from aladin_index.ann import faiss
from aladin_index.generations.info import LocalFacts
from aladin_network.errors import AladinError, IndexNotReadyError
from aladin_service.work.health import WorkersHealth
from aladin_service.work.jobs import DescribeIndex
from aladin_service.work.workers import Workers

_PROC = Path("/proc")

# A worker that is adding a hundred photos does not delay a scrape: the scrape then reports the last
# known values.
_DESCRIBE_S = 0.2


class ProcessMemory(NamedTuple):
    """Memory of a process that is currently in RAM, in bytes.

    Attributes:
        own: Memory not shared with other processes, such as objects and buffers. A leak shows here.
        shared: Memory of mapped files, above all the index; processes that map the same file share
            it, so a sum over processes counts it more than once.
    """

    own: int
    shared: int


def process_memory(pid: int) -> ProcessMemory | None:
    try:
        fields = (_PROC / str(pid) / "statm").read_text(encoding="ascii").split()
    except OSError:
        return None
    page_bytes = os.sysconf("SC_PAGE_SIZE")
    resident, shared = (int(pages) * page_bytes for pages in fields[1:3])
    return ProcessMemory(own=resident - shared, shared=shared)


class StateNow(NamedTuple):
    """State found by one scrape.

    Attributes:
        ready: Whether the service is ready, as reported by ``/readyz``.
        workers: State of the workers.
        max_waiting: Number of queries that may wait for a worker.
        live: The live generation, or None if there is none.
    """

    ready: bool
    workers: WorkersHealth
    max_waiting: int
    live: LocalFacts | None


class StateMetrics:
    """Renders the application's state; caches the index state for when no worker is free."""

    def __init__(self) -> None:
        self._index: LocalFacts | None = None

    async def render(self, workers: Workers, *, max_waiting: int, draining: bool) -> bytes:
        """Collect the state of the service and render it in Prometheus' text format."""
        try:
            async with asyncio.timeout(_DESCRIBE_S):
                self._index = await workers.call(DescribeIndex())
        except IndexNotReadyError:
            self._index = None
        except (AladinError, TimeoutError):
            pass
        health = workers.health()
        ready = health.ready and not draining
        return render_state(StateNow(ready, health, max_waiting, self._index))


def render_state(now: StateNow) -> bytes:
    registry = CollectorRegistry()
    registry.register(_StateCollector(now))
    return generate_latest(registry)


def _version_of_torch() -> str:
    """Return the installed version without importing torch, or "none"."""
    try:
        return version("torch")
    except PackageNotFoundError:
        return "none"


class _StateCollector(Collector):
    def __init__(self, now: StateNow) -> None:
        self._now = now

    def collect(self) -> Iterator[Metric]:
        now = self._now
        build = _gauges(
            "build_info",
            "Versions of the service and its libraries; the value is 1.",
            "version",
            "python",
            "torch",
            "faiss",
        )
        own, python = version("aladin-search"), platform.python_version()
        build.add_metric((own, python, _version_of_torch(), faiss.__version__), 1)
        yield build
        yield _gauge("ready", "Whether the service is ready, as reported by /readyz.", now.ready)
        yield _gauge(
            "queue_limit", "Maximum number of queries waiting for a worker.", now.max_waiting
        )
        yield from _worker_families(now.workers)
        yield from _index_families(now.live)


def _gauge(name: str, description: str, value: float) -> Metric:
    return GaugeMetricFamily(f"aladin_{name}", description, float(value))


def _gauges(name: str, description: str, *labels: str) -> GaugeMetricFamily:
    return GaugeMetricFamily(f"aladin_{name}", description, labels=labels)


def _worker_families(workers: WorkersHealth) -> Iterator[Metric]:
    yield _gauge("workers_wanted", "Configured number of workers.", workers.wanted)
    yield _gauge("workers_alive", "Workers that accept jobs.", workers.alive)
    yield _gauge(
        "index_generation_refused",
        "1 while a newer published generation is invalid.",
        workers.refused is not None,
    )
    if workers.generation is not None:
        yield _gauge("index_generation", "The live generation.", workers.generation)
    if workers.engine is not None:
        yield _gauge("engine_up", "Whether the vector database responds.", workers.engine == "up")
    memory = _gauges(
        "process_memory_bytes",
        "Resident memory by process: private, and files shared with others.",
        "process",
        "kind",
    )
    # Labelled by place and not by pid: a worker that replaces another one continues its series.
    pids = {"front": os.getpid()}
    pids |= {f"worker-{place}": pid for place, pid in workers.pids.items()}
    for name, pid in pids.items():
        held = process_memory(pid)
        if held is not None:
            memory.add_metric((name, "own"), held.own)
            memory.add_metric((name, "shared"), held.shared)
    yield memory


def _index_families(index: LocalFacts | None) -> Iterator[Metric]:
    items = _gauges("index_items", "Items that a search may return.", "collection")
    size = _gauges(
        "index_size_bytes",
        "Files of the live generation and of its model, without items added since it was built.",
        "part",
    )
    if index is not None:
        for target, collection in index.collections.items():
            items.add_metric((target,), collection.count)
        for part, total in index.size_bytes.items():
            size.add_metric((part,), total)
    yield items
    yield size
