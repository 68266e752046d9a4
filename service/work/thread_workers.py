"""Workers that are threads of the service's own process."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import ParamSpec, TypeVar

from aladin.errors import AladinError, IndexNotReadyError, OverloadedError
from service.metrics import Metrics
from service.settings import ServiceSettings
from service.work.job import Job
from service.work.search_job import Answered, SearchJob
from service.work.worker import Worker
from service.work.workers import WorkersHealth

P = ParamSpec("P")
T = TypeVar("T")

# Told to refused clients: a waiting line of queries of some tens of ms is worked off by then.
RETRY_AFTER_S = 1.0


class ThreadWorkers:
    """A thread pool whose waiting line has an end, and one worker that all its threads use.

    Jobs know nothing of each other: one that raises reports to its own caller only.
    """

    def __init__(self, worker: Worker, settings: ServiceSettings, metrics: Metrics) -> None:
        """Start no thread yet; they come with the first jobs.

        Args:
            worker: closed by `stop`.
            settings: how many jobs may run and wait.
            metrics: where batches and waiting queries are counted.
        """
        self._worker = worker
        self._metrics = metrics
        self._threads = settings.query_threads
        self._executor = ThreadPoolExecutor(self._threads, thread_name_prefix="query")
        self._max_jobs = self._threads + settings.max_waiting
        self._jobs = 0

    async def start(self) -> None:
        """Open the index if there is one."""
        await self._run(self._worker.live.try_to_open)

    async def stop(self) -> None:
        """Drop the jobs that wait, finish those that run, close the index."""
        await asyncio.to_thread(self._executor.shutdown, wait=True, cancel_futures=True)
        self._worker.close()

    async def search(self, job: SearchJob) -> Answered:
        """Answer one query; see `Workers.search`."""
        answers: list[Answered | AladinError] = []
        await self._run(self._worker.answer, [job], lambda _, answer: answers.append(answer))
        if isinstance(answers[0], AladinError):
            raise answers[0]
        return answers[0]

    async def call(self, job: Job[T]) -> T:
        """Do one job; see `Workers.call`."""
        return await self._run(job.run, self._worker)

    def health(self) -> WorkersHealth:
        """Say how the workers are."""
        try:
            generation = self._worker.live.engine().manifest.generation
        except IndexNotReadyError:
            generation = None
        return WorkersHealth(wanted=self._threads, alive=self._threads, generation=generation)

    async def _run(self, job: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Run a blocking job on a thread; call it from the event loop only.

        Raises:
            OverloadedError: too many jobs wait already.
        """
        if self._jobs >= self._max_jobs:
            raise OverloadedError(RETRY_AFTER_S)
        future = self._executor.submit(job, *args, **kwargs)
        self._jobs += 1
        loop = asyncio.get_running_loop()
        # A client that goes away cancels the wait, not the running job: its place stays taken.
        future.add_done_callback(lambda _: _call_if_open(loop, self._release))
        return await asyncio.wrap_future(future)

    def _release(self) -> None:
        self._jobs -= 1


def _call_if_open(loop: asyncio.AbstractEventLoop, callback: Callable[[], None]) -> None:
    if not loop.is_closed():
        loop.call_soon_threadsafe(callback)
