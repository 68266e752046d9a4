"""Bounded first-in, first-out queues of jobs."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, TypeVar, cast

from aladin_network.errors import AladinError, NoWorkerError, OverloadedError, ShuttingDownError
from aladin_service.work.worker import Job, JobQueueName, without_traceback

T = TypeVar("T")

# Sent with a refusal: most jobs are look-ups on disk, while an upload takes seconds.
_RETRY_AFTER_S = 1.0


@dataclass(frozen=True, eq=False)
class QueuedJob:
    """A waiting job and the future of its result, which is cancelled when nobody waits for it."""

    job: Job[Any]
    result: asyncio.Future[Any]

    def is_wanted(self) -> bool:
        """Return whether a client still waits for the result; thread-safe."""
        return not self.result.done()

    def settle(self, result: object) -> None:
        """Set the result, unless the future is done."""
        if not self.result.done():
            self.result.set_result(result)

    def fail(self, error: Exception) -> None:
        """Set an error, unless the future is done."""
        if not self.result.done():
            self.result.set_exception(without_traceback(error))


class JobQueue:
    """Jobs in order of arrival. Not thread-safe: all methods are called on one event loop."""

    def __init__(self, max_waiting: int) -> None:
        """Create an empty queue.

        Args:
            max_waiting: Jobs that may wait while no worker is free; more are refused.
        """
        self._max_waiting = max_waiting
        self._waiting: deque[QueuedJob] = deque()
        self._came = asyncio.Event()
        self._free = 0  # workers in `next_job`
        self._closed = False
        self._no_worker = False

    async def do(self, job: Job[T]) -> T:
        """Queue a job and wait for its result; cancelling the wait withdraws a waiting job.

        Raises:
            AladinError: If the job fails; any error of the job.
            OverloadedError: If too many jobs wait.
            ShuttingDownError: If the queue is closed.
            NoWorkerError: If there is no worker.
        """
        if self._closed:
            raise ShuttingDownError
        if self._no_worker:
            raise NoWorkerError
        # Each idle worker takes one of the queued jobs.
        ahead = len(self._waiting) - self._free
        if ahead >= self._max_waiting:
            raise OverloadedError(_RETRY_AFTER_S)
        waiting = QueuedJob(job, asyncio.get_running_loop().create_future())
        self._waiting.append(waiting)
        self._came.set()
        try:
            return cast(T, await waiting.result)
        except asyncio.CancelledError:
            # At once, to free a place in the queue and the memory of an upload.
            if waiting in self._waiting:
                self._waiting.remove(waiting)
            raise
        finally:
            # An error's traceback refers to this frame, which must not refer back to the error.
            del waiting

    async def next_job(self) -> QueuedJob:
        """Wait for a job that is still wanted and take it; the caller settles or fails it."""
        self._free += 1
        try:
            while True:
                while self._waiting:
                    waiting = self._waiting.popleft()
                    if waiting.is_wanted():
                        return waiting
                self._came.clear()
                await self._came.wait()
        finally:
            self._free -= 1

    def set_worker_missing(self, missing: bool) -> None:
        """Refuse all jobs, including those that wait, while there is no worker."""
        self._no_worker = missing
        if missing:
            self._fail_waiting(NoWorkerError())

    def close(self, error: AladinError) -> None:
        """Accept no more jobs, and fail those that wait."""
        self._closed = True
        self._fail_waiting(error)

    def _fail_waiting(self, error: AladinError) -> None:
        while self._waiting:
            self._waiting.popleft().fail(error)


class JobQueues:
    """A job queue for each name. Not thread-safe: all methods are called on one event loop."""

    def __init__(self, max_waiting: Mapping[JobQueueName, int]) -> None:
        """Create empty queues.

        Args:
            max_waiting: Capacity of each queue; see `JobQueue`.
        """
        self._queues = {name: JobQueue(most) for name, most in max_waiting.items()}

    async def do(self, job: Job[T]) -> T:
        """Wait for a job's result in its queue; see `JobQueue.do`."""
        return await self._queues[job.queue].do(job)

    def queue(self, name: JobQueueName) -> JobQueue:
        """Return the queue with a name."""
        return self._queues[name]

    def set_worker_missing(self, missing: bool) -> None:
        """Refuse all jobs, including those that wait, while there is no worker."""
        for queue in self._queues.values():
            queue.set_worker_missing(missing)

    def close(self, error: AladinError) -> None:
        """Accept no more jobs, and fail those that wait."""
        for queue in self._queues.values():
            queue.close(error)
