"""Where single jobs wait until a worker takes them: bounded, in lanes, first come first served.

Takes work out of a line for one worker, one piece after the other.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Any, Generic, TypeVar, cast

from aladin_network.errors import AladinError, NoWorkerError, OverloadedError, ShuttingDownError
from aladin_service.work.worker import Job, JobQueueName, without_traceback

T = TypeVar("T")

# Told to those who are refused: most jobs are looks at the disk, an upload takes seconds.
_RETRY_AFTER_S = 1.0


@dataclass(frozen=True, eq=False)
class QueuedJob:
    """A job and whoever waits for its result; the latter is cancelled when nobody does."""

    job: Job[Any]
    result: asyncio.Future[Any]

    def is_wanted(self) -> bool:
        """Whether somebody still waits for the result; may be called from any thread."""
        return not self.result.done()

    def settle(self, result: object) -> None:
        """Give the result, if somebody still waits."""
        if not self.result.done():
            self.result.set_result(result)

    def fail(self, error: Exception) -> None:
        """Give an error, if somebody still waits."""
        if not self.result.done():
            self.result.set_exception(without_traceback(error))


class JobQueue:
    """Jobs in the order in which they came. Not thread-safe: all is called on one event loop."""

    def __init__(self, max_waiting: int) -> None:
        """Wait for jobs and for workers.

        Args:
            max_waiting: jobs for which no worker is free; more are refused.
        """
        self._max_waiting = max_waiting
        self._waiting: deque[QueuedJob] = deque()
        self._came = asyncio.Event()
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
        ahead = len(self._waiting) - self._free
        if ahead >= self._max_waiting:
            raise OverloadedError(_RETRY_AFTER_S)
        waiting = QueuedJob(job, asyncio.get_running_loop().create_future())
        self._waiting.append(waiting)
        self._came.set()
        try:
            return cast(T, await waiting.result)
        except asyncio.CancelledError:
            # At once: a place is free again, and what was uploaded is let go.
            if waiting in self._waiting:
                self._waiting.remove(waiting)
            raise
        finally:
            # An error's traceback refers to this frame: it must not lead back to the error.
            del waiting

    async def next_job(self) -> QueuedJob:
        """Wait for a job that somebody waits for, and take it; the caller settles or fails it."""
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
        while self._waiting:
            self._waiting.popleft().fail(error)


class JobQueues:
    """A line for each lane. Not thread-safe: all is called on one event loop."""

    def __init__(self, max_waiting: Mapping[JobQueueName, int]) -> None:
        """Wait for jobs and for workers.

        Args:
            max_waiting: Of each lane, jobs for which no worker is free; more are refused.
        """
        self._lines = {lane: JobQueue(most) for lane, most in max_waiting.items()}

    async def do(self, job: Job[T]) -> T:
        """Wait for a job's result in its lane; see `JobLine.do`."""
        return await self._lines[job.lane].do(job)

    def line(self, lane: JobQueueName) -> JobQueue:
        """Return the line of a lane."""
        return self._lines[lane]

    def set_worker_missing(self, missing: bool) -> None:
        """Refuse all jobs, those that wait as well, while no worker takes any."""
        for line in self._lines.values():
            line.set_worker_missing(missing)

    def close(self, error: AladinError) -> None:
        """Take no more jobs, and fail those that wait."""
        for line in self._lines.values():
            line.close(error)


class WorkerSlot(Generic[T]):
    """A place where a worker can do one piece of work at a time."""

    def __init__(
        self, take: Callable[[], Awaitable[T | None]], run: Callable[[T], Awaitable[None]]
    ) -> None:
        """Begin to take work.

        Args:
            take: waits for the next piece; None: there will be no more. To cancel it loses none.
            run: does it.
        """
        self._take = take
        self._run = run
        self._waits = False
        self._stopped = False
        self._task = asyncio.create_task(self._work())

    @property
    def has_ended(self) -> bool:
        """Whether it takes no more and has done what it took."""
        return self._task.done()

    def stop(self) -> None:
        """Take no more work; what was taken is done."""
        self._stopped = True
        if self._waits:
            self._task.cancel()

    async def ended(self) -> None:
        """Wait until it takes no more and what it took is done."""
        await asyncio.gather(self._task, return_exceptions=True)

    async def abort(self) -> None:
        """End it, whatever it is at."""
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
            del work  # while it waits for the next one, nothing of this one stays in memory
