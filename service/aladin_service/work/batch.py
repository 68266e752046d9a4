"""A batch: queries that a worker slot answers together."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from aladin_network.errors import WorkerDiedError
from aladin_service.search.job import Answered, QueueName, SearchJob


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


class Batch:
    """Queries taken out of one queue; the slot that took them has to settle each of them.

    All methods but `is_wanted` are called on the event loop. The slot calls `finish` or `fail_rest`
    at the end.
    """

    def __init__(
        self,
        queue: QueueName,
        waiters: Sequence[QueuedQuery],
        started_s: float,
        on_end: Callable[[Batch], None],
        *,
        was_alone: bool = False,
    ) -> None:
        """Create a batch.

        Args:
            queue: Queue that the queries were taken from.
            waiters: Queries, at least one.
            started_s: Current time, by `time.monotonic`.
            on_end: Called once when the slot has finished the batch.
            was_alone: Whether the batch is a single query while nothing else ran or waited.
        """
        self.queue: QueueName = queue
        self.jobs = [waiter.job for waiter in waiters]
        self.started_s = started_s
        self.first_since_s = min(waiter.since_s for waiter in waiters)
        self._answers = [waiter.answer for waiter in waiters]
        self._on_end: Callable[[Batch], None] | None = on_end
        self.was_alone = was_alone
        self.answered = 0  # without failed and withdrawn queries, which cost next to nothing
        self.uncached = 0  # answered queries whose encoding was not cached

    def is_wanted(self, place: int) -> bool:
        """Return whether a client still waits for an answer; thread-safe."""
        return not self._answers[place].done()

    def settle(self, place: int, answer: Answered | Exception) -> None:
        """Settle one query with an answer or an error; does nothing if it was cancelled.

        Args:
            place: Position in `jobs`.
            answer: Answer or error; any error but an `AladinError` becomes status 500.
        """
        future = self._answers[place]
        if isinstance(answer, Exception):
            if not future.done():
                future.set_exception(answer)
            return
        self.answered += 1
        self.uncached += not answer.cached
        if not future.done():
            queue_s = self.started_s - self.jobs[place].received_s
            future.set_result(answer._replace(queue_ms=1000 * queue_s))

    def finish(self) -> None:
        """Mark the batch as done; queries without an answer fail."""
        self.fail_rest(WorkerDiedError())

    def fail_rest(self, error: Exception) -> None:
        """Fail all queries that have no answer yet, and release the slot."""
        for future in self._answers:
            if not future.done():
                future.set_exception(error)
        if self._on_end is not None:
            self._on_end(self)
            self._on_end = None
