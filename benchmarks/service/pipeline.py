"""The search pipeline without HTTP: encode, retrieve, re-rank and write the JSON.

Also the overhead of HTTP for a query that has the service to itself.
"""

from __future__ import annotations

import itertools
import json
import multiprocessing
import socket
import threading
import time
from collections.abc import Callable, Iterable, Sequence
from contextlib import closing
from dataclasses import dataclass
from multiprocessing.connection import Connection
from multiprocessing.synchronize import Barrier
from pathlib import Path
from typing import NamedTuple

import numpy as np

from aladin_index.search.options import SearchOptions
from aladin_network.errors import AladinError
from aladin_network.graphs.threads import set_compute_threads
from aladin_network.types import DeviceName
from aladin_service.search.job import Answered, Query, SearchJob
from aladin_service.settings import ServiceSettings
from aladin_service.work.worker import Worker, WorkerPlan
from benchmarks.lib.measuring import time_in_turn

_SPAWN = multiprocessing.get_context("spawn")
_WARM_UP_S = 0.5

_PARTS = ("decode", "encode", "retrieve", "rerank")


def open_worker(index: Path, settings: ServiceSettings, device: DeviceName = "cpu") -> Worker:
    """Open a worker that uses one thread for each call, as in the service."""
    set_compute_threads(1)
    worker = WorkerPlan(index=index, settings=settings, device=device).make()
    worker.live.open()
    return worker


def answer_batch(worker: Worker, queries: Sequence[Query]) -> list[Answered]:
    """Answer queries together, as searches of the images with the usual options.

    Raises:
        AladinError: If one of the queries cannot be answered.
    """
    now = time.monotonic()
    options = SearchOptions()
    jobs = [
        SearchJob(query=query, target="images", options=options, received_s=now)
        for query in queries
    ]
    answers: list[Answered] = []
    for answer in worker.do(jobs, lambda _: True):
        if isinstance(answer, Exception):
            raise answer
        assert isinstance(answer, Answered)  # only documents have answers of another kind
        answers.append(answer)
    return answers


@dataclass(frozen=True, kw_only=True)
class PipelineRun:
    """Parameters of repeated calls of the pipeline.

    Attributes:
        index: Index to search.
        settings: Settings of the worker; queries are never cached, whatever the settings.
        queries: Queries to answer in turn.
        processes: Number of processes, each with its own worker.
        threads: Number of threads of each process; each handles a batch of its own at a time.
        batches: Batch sizes, measured one after the other.
        seconds: Seconds for each batch size.
        device: Device of the network and the search.
    """

    index: Path
    settings: ServiceSettings
    queries: Sequence[Query]
    processes: int
    threads: int
    batches: Sequence[int]
    seconds: float
    device: DeviceName = "cpu"


def measure_pipeline(run: PipelineRun) -> dict[int, float]:
    """Return the queries per second for each batch size, of all processes together."""
    barrier = _SPAWN.Barrier(run.processes)
    pipes = [_SPAWN.Pipe(duplex=False) for _ in range(run.processes)]
    children = [_SPAWN.Process(target=_call, args=(run, barrier, pipe[1])) for pipe in pipes]
    for child, (_, sender) in zip(children, pipes, strict=True):
        child.start()
        sender.close()  # so that a process that dies is noticed
    try:
        each: list[dict[int, float]] = [receiver.recv() for receiver, _ in pipes]
    except EOFError:
        raise SystemExit("a process of the pipeline failed") from None
    finally:
        for child in children:
            child.join()
    return {size: sum(rates[size] for rates in each) for size in run.batches}


def _call(run: PipelineRun, barrier: Barrier, sender: Connection) -> None:
    worker = open_worker(run.index, run.settings, run.device)
    rates: dict[int, float] = {}
    try:
        for size in run.batches:
            batches = itertools.cycle(_batches(run.queries, size))
            _repeat(worker, batches, run.threads, _WARM_UP_S)
            barrier.wait()
            started_s = time.perf_counter()
            count = _repeat(worker, batches, run.threads, run.seconds)
            rates[size] = count / (time.perf_counter() - started_s)
            barrier.wait()
    finally:
        worker.close()
    sender.send(rates)


def _batches(queries: Sequence[Query], size: int) -> Iterable[Sequence[Query]]:
    return [queries[start : start + size] for start in range(0, len(queries) - size + 1, size)]


def _repeat(
    worker: Worker, batches: Iterable[Sequence[Query]], threads: int, seconds: float
) -> int:
    """Answer batches on several threads for a time, and return the number of queries."""
    lock, taken = threading.Lock(), iter(batches)
    counts: list[int] = []
    faults: list[AladinError] = []
    end_s = time.perf_counter() + seconds

    def work() -> None:
        count = 0
        try:
            while time.perf_counter() < end_s:
                with lock:
                    batch = next(taken)
                count += len(answer_batch(worker, batch))
        except AladinError as error:
            faults.append(error)
        counts.append(count)

    _in_threads(work, threads)
    if faults:
        raise faults[0]
    return sum(counts)


def _in_threads(work: Callable[[], None], threads: int) -> None:
    running = [threading.Thread(target=work) for _ in range(threads)]
    for thread in running:
        thread.start()
    for thread in running:
        thread.join()


@dataclass(frozen=True, kw_only=True)
class AskedQueries:
    """The same queries for the service and for the pipeline."""

    requests: list[bytes]
    queries: list[Query]


class Overhead(NamedTuple):
    """Median milliseconds of one query at a time.

    Attributes:
        http_ms: Time from the request to the complete response.
        direct_ms: Time of the same queries, answered in this process.
        own_ms: Total time of the parts that the HTTP responses report.
        outside_ms: Time outside of the reported parts over HTTP, minus that in this process. The
            same network takes some tenths of a millisecond more in one process than in another, by
            where its memory lies; this figure is free of it.
    """

    http_ms: float
    direct_ms: float
    own_ms: float
    outside_ms: float


def measure_overhead(port: int, worker: Worker, asked: AskedQueries, turns: int) -> Overhead:
    """Query the service and this process in turn, so that a busy machine slows both.

    Args:
        port: Port of the service on this machine.
        worker: Worker of the same index in this process.
        asked: Queries, sent one after the other and then again from the first.
        turns: Number of measured repetitions.
    """
    answers: list[Answered] = []
    bodies: list[bytes] = []  # parsed afterwards, because a client's parsing is not the service's
    with closing(_Connection(port)) as connection:

        def over_http(turn: int) -> None:
            bodies.append(connection.ask(asked.requests[turn % len(asked.requests)]))

        def directly(turn: int) -> None:
            answers.extend(answer_batch(worker, [asked.queries[turn % len(asked.queries)]]))

        times = time_in_turn({"http": over_http, "direct": directly}, turns)
    took = [json.loads(body)["took_ms"] for body in bodies[-turns:]]
    own_ms = np.array([sum(each[part] for part in _PARTS) for each in took])
    inside_ms = np.array(
        [sum(getattr(each.took_ms, part) for part in _PARTS) for each in answers[-turns:]]
    )
    http_ms, direct_ms = (float(np.median(times[name])) for name in ("http", "direct"))
    outside_ms = np.median(times["http"] - own_ms) - np.median(times["direct"] - inside_ms)
    return Overhead(http_ms, direct_ms, float(np.median(own_ms)), float(outside_ms))


class _Connection:
    """Sends requests over a socket with minimal overhead."""

    def __init__(self, port: int) -> None:
        self._socket = socket.create_connection(("127.0.0.1", port))
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._file = self._socket.makefile("rb")

    def ask(self, request: bytes) -> bytes:
        """Send a request and return the body of the response."""
        self._socket.sendall(request)
        status, length = int(self._file.readline()[9:12]), 0
        while (line := self._file.readline()) not in (b"\r\n", b""):
            name, _, value = line.partition(b":")
            if name.lower() == b"content-length":
                length = int(value)
        body = self._file.read(length)
        if status != 200:
            raise SystemExit(f"expected 200, got {status}: {body[:500]!r}")
        return body

    def close(self) -> None:
        """Close the connection."""
        self._file.close()
        self._socket.close()
