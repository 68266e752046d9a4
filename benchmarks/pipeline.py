"""The pipeline of the service without the service: encode, retrieve, re-rank, write the JSON."""

from __future__ import annotations

import itertools
import multiprocessing
import threading
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from multiprocessing.connection import Connection
from multiprocessing.synchronize import Barrier
from pathlib import Path

import torch

from aladin.errors import AladinError
from service.queries import Query, SearchOptions
from service.settings import ServiceSettings
from service.work.search_job import Answered, SearchJob
from service.work.worker import Worker
from service.work.worker_plan import WorkerPlan

_SPAWN = multiprocessing.get_context("spawn")
_WARM_UP_S = 0.5


def open_worker(index: Path, settings: ServiceSettings) -> Worker:
    """Open what answers queries, on one thread for each call as in the service."""
    torch.set_num_threads(1)
    worker = WorkerPlan(index=index, settings=settings).make()
    worker.live.open()
    return worker


def answer_batch(worker: Worker, queries: Sequence[Query]) -> list[Answered]:
    """Answer queries together, by searches of the images with the usual options.

    Raises:
        AladinError: one of them cannot be answered.
    """
    now = time.monotonic()
    options = SearchOptions()
    jobs = [
        SearchJob(query=query, target="images", options=options, received_s=now)
        for query in queries
    ]
    answers: list[Answered] = []

    def take(_: int, answer: Answered | Exception) -> None:
        if not isinstance(answer, Answered):
            raise answer
        answers.append(answer)

    worker.answer(jobs, take)
    return answers


@dataclass(frozen=True, kw_only=True)
class PipelineRun:
    """How the pipeline is called over and over.

    Attributes:
        index: that is searched.
        settings: of the worker; nothing is remembered of queries whatever they say.
        queries: asked in turn.
        processes: each with its own worker.
        threads: of each process; each has a batch of its own at a time.
        batches: sizes, one after the other.
        seconds: for each size.
    """

    index: Path
    settings: ServiceSettings
    queries: Sequence[Query]
    processes: int
    threads: int
    batches: Sequence[int]
    seconds: float


def measure_pipeline(run: PipelineRun) -> dict[int, float]:
    """Return the queries a second of each size of a batch, of all processes together."""
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
    worker = open_worker(run.index, run.settings)
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
    """Answer batches from some threads for a time, and return how many queries these were."""
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
