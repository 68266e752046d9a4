"""Worker slots, and the batches of queries that they answer."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar

from aladin_network.errors import WorkerDiedError
from aladin_service.search.job import Answered, QueueName, SearchJob

T = TypeVar("T")


@dataclass(frozen=True, eq=False)
class QueuedQuery:
    """A waiting query and the future of its answer.

    Attributes:
        job: The query.
        answer: Future of the answer; cancelled when the client no longer waits.
        since_s: Time of arrival in the queue, by `time.monotonic`.
    """

    job: SearchJob
    answer: asyncio.Future[Answered]
    since_s: float


@dataclass(eq=False)
class Batch:
    """Queries taken out of one queue; the slot that took them has to settle each of them.

    All methods but `is_wanted` are called on the event loop. The slot calls `finish` at the
    end.

    Attributes:
        queue: Queue that the queries were taken from.
        waiters: Queries, at least one.
        jobs: The queries' jobs.
        started_s: Time at which they were taken, by `time.monotonic`.
        on_end: Called once when the slot has finished the batch.
        was_alone: Whether the batch is a single query while nothing else ran or waited.
        answered: Number of answers, without failed and withdrawn queries, which cost next to
            nothing.
        uncached: Number of answered queries whose encoding was not cached.
    """

    queue: QueueName
    waiters: Sequence[QueuedQuery]
    jobs: Sequence[SearchJob]
    started_s: float
    on_end: Callable[[Batch], None] | None
    was_alone: bool = False
    answered: int = 0
    uncached: int = 0

    def is_wanted(self, place: int) -> bool:
        """Return whether a client still waits for an answer; thread-safe."""
        return not self.waiters[place].answer.done()

    def settle(self, place: int, answer: Answered | Exception) -> None:
        """Settle one query with an answer or an error; does nothing if it was cancelled.

        Args:
            place: Position in `jobs`.
            answer: Answer or error; any error but an `AladinError` becomes status 500.
        """
        future = self.waiters[place].answer
        if isinstance(answer, Exception):
            if not future.done():
                future.set_exception(answer)
            return
        self.answered += 1
        self.uncached += not answer.cached
        if not future.done():
            queue_s = self.started_s - self.jobs[place].received_s
            future.set_result(answer._replace(queue_ms=1000 * queue_s))

    def finish(self, error: Exception | None = None) -> None:
        """Fail all queries that have no answer yet, and release the slot.

        Args:
            error: Error of these queries, or None if the worker died.
        """
        for waiter in self.waiters:
            if not waiter.answer.done():
                waiter.answer.set_exception(error or WorkerDiedError())
        if self.on_end is not None:
            self.on_end(self)
            self.on_end = None


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
