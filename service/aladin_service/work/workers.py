"""Workers as the HTTP routes see them, and the workers that are threads of the service's process.

`service.work.processes` has the workers that are processes.
"""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import asdict
from functools import partial
from queue import SimpleQueue
from typing import Any, NamedTuple, Protocol, TypeVar

from aladin_network.errors import NoWorkerError, OverloadedError, ShuttingDownError, WorkerDiedError
from aladin_service.observe.metrics import Metrics
from aladin_service.search.job import Answered, EncodedDocument, EncodeJob, QueueName, SearchJob
from aladin_service.settings import ServiceSettings
from aladin_service.work.admission import QueryQueue
from aladin_service.work.health import WorkersHealth
from aladin_service.work.queues import JobQueue, Taken
from aladin_service.work.worker import JOB_QUEUES, Job, JobQueueName, Worker

T = TypeVar("T")

_LOG = logging.getLogger(__name__)

# Seconds until a dead thread is replaced, so that a fault that kills every thread does not keep the
# processors busy.
_RESTART_S = 0.25
# Seconds that work in progress may take when the service stops.
_STOP_S = 10.0


class Workers(Protocol):
    """Runs the blocking work of requests; the methods are called on the event loop only."""

    async def start(self) -> None:
        """Start the workers; returns when they accept jobs, whether or not an index is live."""
        ...

    async def stop(self) -> None:
        """Finish running jobs, fail those that wait, and end the workers."""
        ...

    async def search(self, job: SearchJob, /) -> Answered:
        """Answer one query, batched with others; cancelling the call withdraws it.

        Raises as `call` does.
        """
        ...

    async def encode(self, job: EncodeJob, /) -> EncodedDocument:
        """Encode one document, batched with others; cancelling the call withdraws it."""
        ...

    def refusal(self, queue: QueueName) -> OverloadedError | NoWorkerError | None:
        """Return the error with which a query would be refused now, or None if admitted."""
        ...

    async def call(self, job: Job[T]) -> T:
        """Run one job; a change may have been applied in part, or wholly, if it fails.

        Raises what concerns the job itself, or that no index is live, that its database does not
        respond, that too many jobs wait, or that its worker died or there is none.
        """
        ...

    def health(self) -> WorkersHealth:
        """Return the state of the workers."""
        ...


class Queues:
    """All queues of a service, in which the requests wait, and what its workers take from them."""

    def __init__(self, settings: ServiceSettings, metrics: Metrics) -> None:
        self.queries = QueryQueue(settings, metrics)
        self.jobs: Mapping[JobQueueName, JobQueue] = {
            name: JobQueue(name, min(settings.max_waiting, facts.most_waiting))
            for name, facts in JOB_QUEUES.items()
        }
        self._query_threads = settings.query_threads

    async def call(self, job: Job[T]) -> T:
        """Wait for a job's result in its queue."""
        return await self.jobs[job.queue].answer(job)

    def takes(self) -> dict[str, Callable[[], Awaitable[Taken[Any] | None]]]:
        """Return by name what each thread of a worker waits for its work in."""
        threads: dict[str, Callable[[], Awaitable[Taken[Any] | None]]] = {
            f"query-{number}": self.queries.next_batch for number in range(self._query_threads)
        }
        for name, facts in JOB_QUEUES.items():
            for number in range(facts.threads):
                threads[f"{name}-{number}"] = self.jobs[name].next_job
        return threads

    def set_worker_missing(self, missing: bool) -> None:
        """Refuse everything, including what waits, while there is no worker."""
        for queue in (self.queries, *self.jobs.values()):
            queue.set_worker_missing(missing)

    def close(self) -> None:
        """Accept nothing more, and fail the jobs that wait; queries that wait are still taken."""
        self.queries.close()
        for queue in self.jobs.values():
            queue.close()
            queue.fail_waiting(ShuttingDownError())


class WorkerSlot:
    """Takes work out of a queue for one worker, one piece at a time.

    `take` waits for the next piece, or returns None at the end of the queue; cancelling it loses no
    work.
    """

    def __init__(
        self,
        take: Callable[[], Awaitable[Taken[Any] | None]],
        run: Callable[[Taken[Any]], Awaitable[None]],
    ) -> None:
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
        self._tasks: SimpleQueue[_Task | None] = SimpleQueue()
        self.is_alive = True
        # A daemon, because work that hangs in native code must not keep the process from exiting.
        self._thread = threading.Thread(target=self._work, name=name, daemon=True)
        self._thread.start()

    async def run(self, work: Callable[[], T]) -> T:
        """Run a function on the thread; cancelling the wait does not stop it."""
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
    """Workers that are threads of this process; they share one `Worker`, which `stop` closes."""

    def __init__(self, worker: Worker, settings: ServiceSettings, metrics: Metrics) -> None:
        self._worker = worker
        self._metrics = metrics
        self._queues = Queues(settings, metrics)
        # The queues are what the routes wait in, see `Workers`.
        self.search = self.encode = self._queues.queries.answer
        self.refusal = self._queues.queries.refusal
        self.call = self._queues.call
        self._takes = self._queues.takes()
        self._threads: dict[str, WorkerThread] = {}  # by the same names
        self._slots: list[WorkerSlot] = []

    async def start(self) -> None:
        """Start the threads, and open the index if one is published."""
        for name, take in self._takes.items():
            self._threads[name] = WorkerThread(name)
            self._slots.append(WorkerSlot(take, partial(self._run, name)))
        await self._threads["read-0"].run(self._worker.live.try_to_open)

    async def stop(self) -> None:
        """Finish all queries and the running jobs, then close the index.

        Whatever is still running after ten seconds fails, and the index stays open until the
        process exits, because a thread may still use it.
        """
        self._queues.close()
        ended = asyncio.gather(*(slot.ended() for slot in self._slots))
        try:
            await asyncio.wait_for(ended, _STOP_S)
        except TimeoutError:
            _LOG.error("shutdown timeout (%g s): cancelling pending work", _STOP_S)
            self._queues.queries.fail_waiting(ShuttingDownError())
            for slot in self._slots:
                await slot.abort()
            return
        for thread in self._threads.values():
            thread.close()
        self._worker.close()

    def health(self) -> WorkersHealth:
        return WorkersHealth(
            wanted=len(self._takes),
            alive=sum(thread.is_alive for thread in self._threads.values()),
            **asdict(self._worker.live.state),
        )

    async def _run(self, name: str, taken: Taken[Any]) -> None:
        thread = self._threads[name]
        try:
            result = await thread.run(partial(self._worker.do, taken.work, taken.is_wanted))
        except Exception as error:
            taken.finish(error)
        else:
            await taken.deliver(result)
            del result
        if not thread.is_alive:
            await self._replace(name)

    async def _replace(self, name: str) -> None:
        """Replace a thread that died; its slot takes no work until then."""
        self._metrics.worker_died()
        await asyncio.sleep(_RESTART_S)
        self._threads[name] = WorkerThread(name)
        self._metrics.worker_restarted()
