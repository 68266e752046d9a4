"""Workers that are threads of the service's own process: one worker, used by all of them."""

from __future__ import annotations

import asyncio
import logging
from functools import partial
from typing import TypeVar

from aladin.errors import NoWorkerError, OverloadedError, ShuttingDownError
from service.metrics import Metrics
from service.settings import ServiceSettings
from service.work.batch import Batch
from service.work.job import Job
from service.work.job_line import JobLines, WaitingJob
from service.work.query_lines import QueryLines
from service.work.search_job import Answered, Lane, SearchJob
from service.work.slot import Slot
from service.work.worker import Worker
from service.work.worker_plan import JOB_THREADS, LANE_THREADS, max_waiting_jobs
from service.work.worker_thread import WorkerThread
from service.work.workers import WorkersHealth

T = TypeVar("T")

_LOG = logging.getLogger(__name__)

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
        self._lines = QueryLines(settings, metrics)
        self._jobs = JobLines(max_waiting_jobs(settings))
        self._query_threads = settings.query_threads
        self._threads: dict[str, WorkerThread] = {}  # by the name of their place
        self._query_slots: list[Slot[Batch]] = []
        self._job_slots: list[Slot[WaitingJob]] = []

    async def start(self) -> None:
        """Start the threads, and open the index if there is one."""
        for number in range(self._query_threads):
            name = f"query-{number}"
            self._threads[name] = WorkerThread(name)
            self._query_slots.append(Slot(self._lines.next_batch, partial(self._answer, name)))
        for lane, threads in LANE_THREADS.items():
            take = self._jobs.line(lane).next_job
            for number in range(threads):
                name = f"{lane}-{number}"
                self._threads[name] = WorkerThread(name)
                self._job_slots.append(Slot(take, partial(self._do, name)))
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

    def refusal(self, lane: Lane) -> OverloadedError | NoWorkerError | None:
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

    async def _do(self, name: str, waiting: WaitingJob) -> None:
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
