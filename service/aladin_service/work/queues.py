"""Bounded queues of the work that waits for a worker, and what a worker takes from them.

A job is admitted while few others wait; for queries see `aladin_service.work.admission`. All
classes are for one event loop only.
"""

from __future__ import annotations

import asyncio
import time
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Generic, TypeVar, cast

from aladin_network.errors import (
    AladinError,
    NoWorkerError,
    OverloadedError,
    ShuttingDownError,
    WorkerDiedError,
)
from aladin_service.search.job import (
    QueuedWork,
)
from aladin_service.work.worker import Job, JobQueueName, Work, without_traceback

T = TypeVar("T")
N = TypeVar("N", bound=str)
W = TypeVar("W", bound=Work)

# Sent when a job is refused: most jobs are look-ups on disk, while an upload takes seconds.
_RETRY_AFTER_S = 1.0


@dataclass(frozen=True, eq=False)
class Waiting:
    """Work in a queue.

    Attributes:
        work: A query, a document to encode, or a job.
        result: Future of the result; cancelled when the client no longer waits.
        since_s: Time of arrival in the queue, by `time.monotonic`.
    """

    work: Any
    result: asyncio.Future[Any]
    since_s: float

    def settle(self, outcome: object) -> None:
        """Set the result or an error, unless nobody waits any more."""
        if self.result.done():
            return
        if isinstance(outcome, Exception):
            self.result.set_exception(without_traceback(outcome))
        else:
            self.result.set_result(outcome)


@dataclass(eq=False, kw_only=True)
class Taken(ABC, Generic[W]):
    """Work that a slot took out of a queue: the slot calls `deliver` or `finish` at the end.

    All methods but `is_wanted` are called on the event loop.

    Attributes:
        work: What a worker is to do.
        waiting: What each place of the work came from.
        is_timed: Whether a worker process that takes too long for it is killed.
    """

    is_timed: ClassVar[bool]
    work: W
    waiting: Sequence[Waiting]

    def is_wanted(self, place: int) -> bool:
        """Whether a client still waits for a result; thread-safe."""
        return not self.waiting[place].result.done()

    @abstractmethod
    async def deliver(self, result: Any) -> None:
        """Settle the work with what `Worker.do` returned, and finish."""

    @abstractmethod
    def finish(self, error: Exception | None = None) -> None:
        """Fail what has no result yet, by default because the worker died."""


class TakenJob(Taken[Job[Any]]):
    """A single job."""

    is_timed = False

    async def deliver(self, result: Any) -> None:
        self.waiting[0].settle(result)

    def finish(self, error: Exception | None = None) -> None:
        self.waiting[0].settle(error or WorkerDiedError())


class WaitingQueues(ABC, Generic[N]):
    """Queues by name, and the idle slots that take from all of them."""

    def __init__(self, names: Iterable[N]) -> None:
        self._queues: dict[N, deque[Waiting]] = {name: deque() for name in names}
        self._idle: deque[asyncio.Future[None]] = deque()
        self._pulling = 0  # slots that wait for work
        self._closed = False
        self._no_worker = False

    @property
    def waiting(self) -> int:
        """Number of queries or jobs that no slot has taken yet."""
        return sum(map(len, self._queues.values()))

    @abstractmethod
    def refusal(self, queue: N) -> OverloadedError | NoWorkerError | None:
        """Return the error with which more work would be refused, or None if admitted."""

    async def answer(self, work: QueuedWork | Job[Any]) -> Any:
        """Queue work and wait for its result; cancelling the wait withdraws it at once."""
        queue = cast(N, work.queue)
        if self._closed:
            raise ShuttingDownError
        if (refusal := self.refusal(queue)) is not None:
            raise refusal
        result = asyncio.get_running_loop().create_future()
        waiting = Waiting(work, result, time.monotonic())
        self._queues[queue].append(waiting)
        self._wake_one()
        try:
            return await result
        except asyncio.CancelledError:
            # At once, to free a place in the queue and the memory of an upload.
            result.cancel()
            if waiting in self._queues[queue]:
                self._queues[queue].remove(waiting)
            raise
        finally:
            # An error's traceback refers to this frame, which must not refer back to the error.
            del waiting, result

    async def _come(self) -> bool:
        """Wait until something waits; False if the queues are closed and empty."""
        while not self.waiting:
            if self._closed:
                return False
            turn = asyncio.get_running_loop().create_future()
            self._idle.append(turn)
            try:
                await turn
            except asyncio.CancelledError:
                if turn.done() and not turn.cancelled():
                    self._wake_one()  # this slot was woken but is cancelled: wake another one
                raise
            finally:
                if turn in self._idle:
                    self._idle.remove(turn)
        return True

    def set_worker_missing(self, missing: bool) -> None:
        """Refuse everything, including what waits, while there is no worker."""
        self._no_worker = missing
        if missing:
            self.fail_waiting(NoWorkerError())

    def close(self) -> None:
        """Accept nothing more; slots still get what waits, then None."""
        self._closed = True
        while self._idle:
            self._wake_one()

    def fail_waiting(self, error: AladinError) -> None:
        """Fail everything that no slot has taken."""
        for queue in self._queues.values():
            while queue:
                queue.popleft().settle(error)

    def _wake_one(self) -> None:
        while self._idle:
            turn = self._idle.popleft()
            if not turn.done():
                turn.set_result(None)
                return


class JobQueue(WaitingQueues[JobQueueName]):
    """Jobs of one kind in order of arrival; more than `most` do not wait."""

    def __init__(self, name: JobQueueName, most: int) -> None:
        super().__init__((name,))
        self._name: JobQueueName = name
        self._most = most

    def refusal(self, queue: JobQueueName) -> OverloadedError | NoWorkerError | None:  # noqa: ARG002
        if self._no_worker:
            return NoWorkerError()
        # Each idle worker takes one of the queued jobs.
        is_full = self.waiting - self._pulling >= self._most
        return OverloadedError(_RETRY_AFTER_S) if is_full else None

    async def next_job(self) -> TakenJob | None:
        """Wait for a job that is still wanted and take it; None once the queue is closed."""
        self._pulling += 1
        try:
            while await self._come():
                waiting = self._queues[self._name].popleft()
                if not waiting.result.done():
                    return TakenJob(work=waiting.work, waiting=(waiting,))
            return None
        finally:
            self._pulling -= 1
