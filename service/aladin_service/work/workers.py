"""Workers as the HTTP routes see them, and the workers that are threads of the service's process.

`service.work.processes` has the workers that are processes.
"""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from queue import SimpleQueue
from typing import Any, Generic, NamedTuple, Protocol, TypeVar

from aladin_network.errors import NoWorkerError, OverloadedError, ShuttingDownError, WorkerDiedError
from aladin_service.observe.metrics import Metrics
from aladin_service.search.job import Answered, EncodedDocument, EncodeJob, QueueName, SearchJob
from aladin_service.settings import ServiceSettings
from aladin_service.work.job_queue import JobQueues, QueuedJob
from aladin_service.work.live_state import EngineStatus
from aladin_service.work.query_queue import Batch, QueryQueue
from aladin_service.work.worker import JOB_THREADS, QUEUE_THREADS, Job, Worker, max_waiting_jobs

T = TypeVar("T")

_LOG = logging.getLogger(__name__)

# Seconds until a dead thread is replaced, so that a fault that kills every thread does not keep the
# processors busy.
_RESTART_S = 0.25
# Seconds that work in progress may take when the service stops.
_STOP_S = 10.0


@dataclass(frozen=True, kw_only=True)
class WorkersHealth:
    """State of the workers.

    Attributes:
        wanted: Number of workers that should be running.
        alive: Number of workers that accept jobs.
        generation: Live generation, or None if no index is live.
        refused: Reason why the newest published generation was refused, or None if it was not; the
            previous one is still live then.
        engine: Worst status of the vector database that any worker reports, or None if the index is
            stored in files.
        pids: Process ids of the live worker processes by worker number; empty for threads.
    """

    wanted: int
    alive: int
    generation: int | None
    refused: str | None = None
    engine: EngineStatus | None = None
    pids: Mapping[int, int] = field(default_factory=dict[int, int])

    @property
    def ready(self) -> bool:
        """Whether all workers are alive, an index is live and its vector database responds."""
        is_served = self.generation is not None and self.engine != "unavailable"
        return self.alive == self.wanted and is_served


class Workers(Protocol):
    """Runs the blocking work of requests; the methods are called on the event loop only."""

    async def start(self) -> None:
        """Start the workers; returns when they accept jobs, whether or not an index is live."""
        ...

    async def stop(self) -> None:
        """Finish running jobs, fail those that wait, and end the workers."""
        ...

    async def search(self, job: SearchJob) -> Answered:
        """Answer one query, batched with others; cancelling the call withdraws the query.

        Raises:
            AladinError: If this query fails; any error that concerns it alone.
            IndexNotReadyError: If no index is live.
            EngineUnavailableError: If the vector database does not respond.
            OverloadedError: If too many queries wait.
            WorkerDiedError: If the worker died while it ran this query.
            NoWorkerError: If there has been no worker for some seconds.
        """
        ...

    async def encode(self, job: EncodeJob) -> EncodedDocument:
        """Encode one document, batched with others; cancelling the call withdraws it.

        Raises:
            AladinError: If the document cannot be encoded; otherwise see `search`.
        """
        ...

    def refusal(self, queue: QueueName) -> OverloadedError | NoWorkerError | None:
        """Return the error with which a query would be refused now, or None if admitted."""
        ...

    async def call(self, job: Job[T]) -> T:
        """Run one job.

        Raises:
            AladinError: If the job fails; any error of the job.
            IndexNotReadyError: If no index is live.
            EngineUnavailableError: If the vector database does not respond; a change may have been
                applied in part.
            OverloadedError: If too many jobs wait.
            WorkerDiedError: If the worker died while it ran this job, which may have been done.
            NoWorkerError: If there has been no worker for some seconds; the job was not started.
        """
        ...

    def health(self) -> WorkersHealth:
        """Return the state of the workers."""
        ...


class WorkerSlot(Generic[T]):
    """Takes batches or jobs out of a queue for one worker, one at a time."""

    def __init__(
        self, take: Callable[[], Awaitable[T | None]], run: Callable[[T], Awaitable[None]]
    ) -> None:
        """Start to take work.

        Args:
            take: Waits for the next piece of work, or returns None at the end of the queue;
                cancelling it loses no work.
            run: Processes a piece of work.
        """
        self._take = take
        self._run = run
        self._waits = False
        self._stopped = False
        self._task = asyncio.create_task(self._work())

    @property
    def has_ended(self) -> bool:
        """Whether the slot takes no more work and has finished what it took."""
        return self._task.done()

    def stop(self) -> None:
        """Take no more work; finish what was taken."""
        self._stopped = True
        if self._waits:
            self._task.cancel()

    async def ended(self) -> None:
        """Wait until the slot has stopped and has finished what it took."""
        await asyncio.gather(self._task, return_exceptions=True)

    async def abort(self) -> None:
        """Cancel the slot, whatever it is doing."""
        self._task.cancel()
        await asyncio.gather(self._task, return_exceptions=True)

    async def _work(self) -> None:
        while not self._stopped:
            self._waits = True
            work = await self._take()
            self._waits = False
            if work is None:
                return
            await self._run(work)
            del work  # release its memory while waiting for the next piece


class _Task(NamedTuple):
    work: Callable[[], Any]
    result: asyncio.Future[Any]
    loop: asyncio.AbstractEventLoop


class WorkerThread:
    """A thread that runs functions one at a time, until it is closed or dies.

    Attributes:
        is_alive: Whether the thread accepts work.
    """

    def __init__(self, name: str) -> None:
        """Start the thread.

        Args:
            name: Name of the thread.
        """
        self._tasks: SimpleQueue[_Task | None] = SimpleQueue()
        self.is_alive = True
        # A daemon, because work that hangs in native code must not keep the process from exiting.
        self._thread = threading.Thread(target=self._work, name=name, daemon=True)
        self._thread.start()

    async def run(self, work: Callable[[], T]) -> T:
        """Run a function on the thread; cancelling the wait does not stop it.

        Raises:
            WorkerDiedError: If the thread died while running the function.
            Exception: If the function fails; any error of the function.
        """
        loop = asyncio.get_running_loop()
        result: asyncio.Future[T] = loop.create_future()
        self._tasks.put(_Task(work, result, loop))
        return await result

    def close(self) -> None:
        """End the thread after the functions that are queued."""
        self._tasks.put(None)

    def _work(self) -> None:
        while self.is_alive and (task := self._tasks.get()) is not None:
            self._do(task)
            # Release its memory while the thread waits for the next one.
            del task

    def _do(self, task: _Task) -> None:
        settle: Callable[[Any], None] = task.result.set_exception
        try:
            outcome = task.work()
            settle = task.result.set_result
        except Exception as error:
            outcome = error
        except BaseException:
            # SystemExit and similar exceptions end a thread, whatever raised them.
            _LOG.exception("thread %s ends", self._thread.name)
            self.is_alive = False
            outcome = WorkerDiedError()
        # Work that hung may end after the service, or when nobody waits for it any more.
        if not task.loop.is_closed() and not task.result.done():
            task.loop.call_soon_threadsafe(settle, outcome)
        # The traceback of an error refers to this frame, and the error to what has failed.
        del outcome


class ThreadWorkers:
    """Workers that are threads of this process; they share one `Worker`."""

    def __init__(self, worker: Worker, settings: ServiceSettings, metrics: Metrics) -> None:
        """Create the workers without starting a thread.

        Args:
            worker: Closed by `stop`.
            settings: Limits on running batches and on waiting queries and jobs.
            metrics: Counts batches, waiting queries and deaths of threads.
        """
        self._worker = worker
        self._metrics = metrics
        self._queries = QueryQueue(settings, metrics)
        self._jobs = JobQueues(max_waiting_jobs(settings))
        # The queues are what the routes wait in, see `Workers`.
        self.search = self.encode = self._queries.answer
        self.refusal = self._queries.refusal
        self.call = self._jobs.do
        self._query_threads = settings.query_threads
        self._threads: dict[str, WorkerThread] = {}  # by slot name
        self._query_slots: list[WorkerSlot[Batch]] = []
        self._job_slots: list[WorkerSlot[QueuedJob]] = []

    async def start(self) -> None:
        """Start the threads, and open the index if one is published."""
        for number in range(self._query_threads):
            name = f"query-{number}"
            self._threads[name] = WorkerThread(name)
            self._query_slots.append(
                WorkerSlot(self._queries.next_batch, partial(self._answer, name))
            )
        for queue, threads in QUEUE_THREADS.items():
            take = self._jobs.queue(queue).next_job
            for number in range(threads):
                name = f"{queue}-{number}"
                self._threads[name] = WorkerThread(name)
                self._job_slots.append(WorkerSlot(take, partial(self._do, name)))
        await self._threads["read-0"].run(self._worker.live.try_to_open)

    async def stop(self) -> None:
        """Finish all queries and the running jobs, then close the index.

        Whatever is still running after ten seconds fails, and the index stays open until the
        process exits, because a thread may still use it.
        """
        self._queries.close()
        self._jobs.close(ShuttingDownError())
        for slot in self._job_slots:
            slot.stop()
        slots = [*self._query_slots, *self._job_slots]
        ended = asyncio.gather(*(slot.ended() for slot in slots))
        try:
            await asyncio.wait_for(ended, _STOP_S)
        except TimeoutError:
            _LOG.error("shutdown timeout (%g s): cancelling pending work", _STOP_S)
            self._queries.fail_waiting(ShuttingDownError())
            for slot in slots:
                await slot.abort()
            return
        for thread in self._threads.values():
            thread.close()
        self._worker.close()

    def health(self) -> WorkersHealth:
        """Return the state of the workers."""
        state = self._worker.live.state
        return WorkersHealth(
            wanted=self._query_threads + JOB_THREADS,
            alive=sum(thread.is_alive for thread in self._threads.values()),
            generation=state.generation,
            refused=state.refused,
            engine=state.engine,
        )

    async def _answer(self, name: str, batch: Batch) -> None:
        thread = self._threads[name]
        try:
            answers = await thread.run(partial(self._worker.answer, batch.jobs, batch.is_wanted))
        except Exception as error:
            batch.finish(error)
        else:
            await batch.deliver(answers)
        if not thread.is_alive:
            await self._replace(name)

    async def _do(self, name: str, waiting: QueuedJob) -> None:
        thread = self._threads[name]
        try:
            work = partial(self._worker.do, waiting.job, waiting.is_wanted)
            waiting.settle(await thread.run(work))
            del work
        except Exception as error:
            waiting.fail(error)
        if not thread.is_alive:
            await self._replace(name)

    async def _replace(self, name: str) -> None:
        """Replace a thread that died; its slot takes no work until then."""
        self._metrics.worker_died()
        await asyncio.sleep(_RESTART_S)
        self._threads[name] = WorkerThread(name)
        self._metrics.worker_restarted()
