"""Where single jobs wait until a worker takes them: bounded, first come, first served."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import Any, TypeVar, cast

from aladin.errors import AladinError, NoWorkerError, OverloadedError, ShuttingDownError
from service.work.job import Job
from service.work.job_errors import without_frames

T = TypeVar("T")

# Told to those who are refused: most jobs are looks at the disk, an upload takes seconds.
_RETRY_AFTER_S = 1.0


@dataclass(frozen=True, eq=False)
class WaitingJob:
    """A job and whoever waits for its result; the latter is cancelled when nobody does."""

    job: Job[Any]
    result: asyncio.Future[Any]

    def settle(self, result: object) -> None:
        """Give the result, if somebody still waits."""
        if not self.result.done():
            self.result.set_result(result)

    def fail(self, error: Exception) -> None:
        """Give an error, if somebody still waits."""
        if not self.result.done():
            self.result.set_exception(without_frames(error))


class JobLine:
    """Jobs in the order in which they came. Not thread-safe: all is called on one event loop."""

    def __init__(self, max_waiting: int) -> None:
        """Wait for jobs and for workers.

        Args:
            max_waiting: jobs for which no worker is free; more are refused.
        """
        self._max_waiting = max_waiting
        self._waiting: asyncio.Queue[WaitingJob] = asyncio.Queue()
        self._free = 0  # workers in `next_job`
        self._closed = False
        self._no_worker = False

    async def do(self, job: Job[T]) -> T:
        """Wait for a job's result; cancelling it withdraws the job, unless a worker has begun.

        Raises:
            AladinError: whatever the job raises.
            OverloadedError: too many wait already.
            ShuttingDownError: the line is closed.
            NoWorkerError: nobody takes jobs out of the line.
        """
        if self._closed:
            raise ShuttingDownError
        if self._no_worker:
            raise NoWorkerError
        # Each worker that is free takes one of those that are in the queue.
        ahead = self._waiting.qsize() - self._free
        if ahead >= self._max_waiting:
            raise OverloadedError(_RETRY_AFTER_S)
        waiting = WaitingJob(job, asyncio.get_running_loop().create_future())
        self._waiting.put_nowait(waiting)
        try:
            return cast(T, await waiting.result)
        finally:
            # An error's traceback refers to this frame: it must not lead back to the error.
            del waiting

    async def next_job(self) -> WaitingJob:
        """Wait for a job that somebody waits for, and take it; the caller settles or fails it."""
        self._free += 1
        try:
            while True:
                waiting = await self._waiting.get()
                if not waiting.result.done():
                    return waiting
        finally:
            self._free -= 1

    def set_worker_missing(self, missing: bool) -> None:  # it is all that is said
        """Refuse all jobs, those that wait as well, while no worker takes any."""
        self._no_worker = missing
        if missing:
            self._fail_waiting(NoWorkerError())

    def close(self, error: AladinError) -> None:
        """Take no more jobs, and fail those that wait."""
        self._closed = True
        self._fail_waiting(error)

    def _fail_waiting(self, error: AladinError) -> None:
        while not self._waiting.empty():
            self._waiting.get_nowait().fail(error)
