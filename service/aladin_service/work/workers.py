"""What the HTTP routes see of the workers, whether they are threads or processes.

A thread that does blocking work for an event loop, one piece at a time.

Workers that are threads of the service's own process: one worker, used by all of them.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from queue import SimpleQueue
from typing import Any, NamedTuple, Protocol, TypeVar, cast

from aladin_network.errors import NoWorkerError, OverloadedError, ShuttingDownError, WorkerDiedError
from aladin_service.observe.metrics import Metrics
from aladin_service.search.job import Answered, QueueName, SearchJob
from aladin_service.settings import ServiceSettings
from aladin_service.work.job_queue import JobQueues, QueuedJob, WorkerSlot
from aladin_service.work.live_index import EngineStatus
from aladin_service.work.query_queue import Batch, QueryQueue
from aladin_service.work.worker import JOB_THREADS, LANE_THREADS, Job, Worker, max_waiting_jobs

T = TypeVar("T")


@dataclass(frozen=True, kw_only=True)
class WorkersHealth:
    """How the workers are.

    Attributes:
        wanted: workers that there should be.
        alive: workers that take jobs now.
        generation: the live one; None where no index is live.
        refused: why the newest published generation was not taken up, None where it was; the
            one before it is still live then.
        engine: that keeps the index, as the worker says that is worst off; None: it is in files.
        pids: of the worker processes that are alive, by their place; none where the workers are
            threads.
    """

    wanted: int
    alive: int
    generation: int | None
    refused: str | None = None
    engine: EngineStatus | None = None
    pids: Mapping[int, int] = field(default_factory=dict[int, int])

    @property
    def ready(self) -> bool:
        """Whether every worker is there, an index is live and its engine answers."""
        return self.alive == self.wanted and self.generation is not None and self.engine != "away"


class Workers(Protocol):
    """Does the blocking work of requests; its methods are called from the event loop only."""

    async def start(self) -> None:
        """Start the workers; returns when they take jobs, be an index live or not."""
        ...

    async def stop(self) -> None:
        """Finish the jobs that run, fail those that wait, and end the workers."""
        ...

    async def search(self, job: SearchJob) -> Answered:
        """Answer one query, encoded together with others that wait; cancelling it withdraws it.

        Raises:
            AladinError: whatever the engine raises of the query itself; no other query sees it.
            IndexNotReadyError: no index is live.
            EngineUnavailableError: the engine that keeps it does not answer.
            OverloadedError: too many queries wait already.
            WorkerDiedError: the worker ended while it ran this query.
            NoWorkerError: for some seconds there has been no worker.
        """
        ...

    def refusal(self, lane: QueueName) -> OverloadedError | NoWorkerError | None:
        """Say why a query of a lane would be refused now; None: it would be taken."""
        ...

    async def call(self, job: Job[T]) -> T:
        """Do one job that is no search.

        Raises:
            AladinError: whatever the job raises.
            IndexNotReadyError: no index is live.
            EngineUnavailableError: the engine that keeps it does not answer; of a change, part
                may have been made.
            OverloadedError: too many jobs wait already.
            WorkerDiedError: the worker ended while it ran this job; it may have been done.
            NoWorkerError: for some seconds there has been no worker; it was not begun.
        """
        ...

    def health(self) -> WorkersHealth:
        """Say how the workers are."""
        ...


_LOG = logging.getLogger(__name__)


class _Task(NamedTuple):
    work: Callable[[], Any]
    future: asyncio.Future[Any]
    loop: asyncio.AbstractEventLoop

    def settle(self, result: object, error: Exception | None) -> None:
        """Tell the event loop, from the thread."""
        # The loop may be closed by now: then nobody waits.
        with contextlib.suppress(RuntimeError):
            self.loop.call_soon_threadsafe(_settle, self.future, result, error)


def _settle(future: asyncio.Future[Any], result: object, error: Exception | None) -> None:
    if future.done():
        return
    if error is None:
        future.set_result(result)
    else:
        future.set_exception(error)


class WorkerThread:
    """Does what it is given, until it is closed or dies of what no work may raise."""

    def __init__(self, name: str) -> None:
        """Start the thread.

        Args:
            name: of the thread.
        """
        self._tasks: SimpleQueue[_Task | None] = SimpleQueue()
        self._dead = False
        # A daemon: work that hangs in native code must not keep the service from ending.
        self._thread = threading.Thread(target=self._work, name=name, daemon=True)
        self._thread.start()

    @property
    def is_alive(self) -> bool:
        """Whether it takes work."""
        return not self._dead

    async def run(self, work: Callable[[], T]) -> T:
        """Have the thread do a piece of work; cancelling the wait does not stop it.

        Raises:
            WorkerDiedError: the thread died of it.
            Exception: whatever the work raises.
        """
        loop = asyncio.get_running_loop()
        task = _Task(work, loop.create_future(), loop)
        self._tasks.put(task)
        return cast(T, await task.future)

    def close(self) -> None:
        """Have the thread end after what it does now."""
        self._tasks.put(None)

    def _work(self) -> None:
        while not self._dead and (task := self._tasks.get()) is not None:
            self._do(task)
            # While the thread waits for the next one, nothing of this one stays in memory.
            del task

    def _do(self, task: _Task) -> None:
        try:
            task.settle(task.work(), None)
        except Exception as error:
            task.settle(None, error)
        except BaseException:
            # SystemExit and the like end a thread, wherever they come from.
            _LOG.exception("the thread %s ends", self._thread.name)
            self._dead = True
            task.settle(None, WorkerDiedError())


# From a thread's death to its replacement: what kills every thread must not keep the machine busy.
_RESTART_S = 0.25
# What was taken before the service ends gets this long.
_STOP_S = 10.0


class ThreadWorkers:
    """Gives what waits in the lines to threads: batches to some, single jobs to others."""

    def __init__(self, worker: Worker, settings: ServiceSettings, metrics: Metrics) -> None:
        """Start no thread yet.

        Args:
            worker: closed by `stop`.
            settings: how many batches may run, and how many queries and jobs may wait.
            metrics: where batches, waiting queries and deaths are counted.
        """
        self._worker = worker
        self._metrics = metrics
        self._lines = QueryQueue(settings, metrics)
        self._jobs = JobQueues(max_waiting_jobs(settings))
        self._query_threads = settings.query_threads
        self._threads: dict[str, WorkerThread] = {}  # by the name of their place
        self._query_slots: list[WorkerSlot[Batch]] = []
        self._job_slots: list[WorkerSlot[QueuedJob]] = []

    async def start(self) -> None:
        """Start the threads, and open the index if there is one."""
        for number in range(self._query_threads):
            name = f"query-{number}"
            self._threads[name] = WorkerThread(name)
            self._query_slots.append(
                WorkerSlot(self._lines.next_batch, partial(self._answer, name))
            )
        for lane, threads in LANE_THREADS.items():
            take = self._jobs.line(lane).next_job
            for number in range(threads):
                name = f"{lane}-{number}"
                self._threads[name] = WorkerThread(name)
                self._job_slots.append(WorkerSlot(take, partial(self._do, name)))
        await self._threads["read-0"].run(self._worker.live.try_to_open)

    async def stop(self) -> None:
        """Finish the queries that run or wait and the jobs that run, then close the index.

        What takes longer than ten seconds is failed, and the index is left to the end of the
        process: a thread may still be at it.
        """
        self._lines.close()
        self._jobs.close(ShuttingDownError())
        for slot in self._job_slots:
            slot.stop()
        slots = [*self._query_slots, *self._job_slots]
        ended = asyncio.gather(*(slot.ended() for slot in slots))
        try:
            await asyncio.wait_for(ended, _STOP_S)
        except TimeoutError:
            _LOG.error("queries or jobs are not through after %g s: they are cut off", _STOP_S)
            self._lines.fail_waiting(ShuttingDownError())
            for slot in slots:
                await slot.abort()
            return
        for thread in self._threads.values():
            thread.close()
        self._worker.close()

    async def search(self, job: SearchJob) -> Answered:
        """Answer one query; see `Workers.search`."""
        return await self._lines.answer(job)

    def refusal(self, lane: QueueName) -> OverloadedError | NoWorkerError | None:
        """Say why a query would be refused; see `Workers.refusal`."""
        return self._lines.refusal(lane)

    async def call(self, job: Job[T]) -> T:
        """Do one job; see `Workers.call`."""
        return await self._jobs.do(job)

    def health(self) -> WorkersHealth:
        """Say how the workers are."""
        state = self._worker.live.state
        return WorkersHealth(
            wanted=self._query_threads + JOB_THREADS,
            alive=sum(thread.is_alive for thread in self._threads.values()),
            generation=state.generation,
            refused=state.refused,
            engine=state.engine,
        )

    async def _answer(self, name: str, batch: Batch) -> None:
        loop = asyncio.get_running_loop()

        def emit(place: int, answer: Answered | Exception) -> None:
            loop.call_soon_threadsafe(batch.settle, place, answer)

        thread = self._threads[name]
        try:
            await thread.run(partial(self._worker.answer, batch.jobs, emit, batch.is_wanted))
        except Exception as error:
            batch.fail_rest(error)
        else:
            batch.finish()
        await self._replace_if_dead(name)

    async def _do(self, name: str, waiting: QueuedJob) -> None:
        thread = self._threads[name]
        try:
            work = partial(self._worker.do, waiting.job, waiting.is_wanted)
            waiting.settle(await thread.run(work))
            del work
        except Exception as error:
            waiting.fail(error)
        await self._replace_if_dead(name)

    async def _replace_if_dead(self, name: str) -> None:
        """Start a thread in the place of one that died; till then its slot takes nothing."""
        if self._threads[name].is_alive:
            return
        self._metrics.worker_died()
        await asyncio.sleep(_RESTART_S)
        self._threads[name] = WorkerThread(name)
        self._metrics.worker_restarted()
