"""Queries that one slot answers together."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from aladin.errors import WorkerDiedError
from service.work.search_job import Answered, Lane, SearchJob


@dataclass(frozen=True, eq=False)
class Waiter:
    """A query and whoever waits for its answer.

    Attributes:
        job: the query.
        answer: cancelled when nobody waits any more.
        since_s: when it joined the line, by `time.monotonic`.
    """

    job: SearchJob
    answer: asyncio.Future[Answered]
    since_s: float


class Batch:
    """Queries of one lane, taken out of the line together; a slot owes each of them an answer.

    All methods but `is_wanted` are called on the event loop. The slot ends with `finish`, or
    with `fail_rest`.
    """

    def __init__(
        self,
        lane: Lane,
        waiters: Sequence[Waiter],
        started_s: float,
        on_end: Callable[[Batch], None],
        *,
        was_alone: bool = False,
    ) -> None:
        """Take waiters over from their lane.

        Args:
            lane: of all of them.
            waiters: at least one.
            started_s: now, by `time.monotonic`.
            on_end: called once, when the slot is through with it.
            was_alone: whether it is one query, and nothing else ran or waited.
        """
        self.lane: Lane = lane
        self.jobs = [waiter.job for waiter in waiters]
        self.started_s = started_s
        self.first_since_s = min(waiter.since_s for waiter in waiters)
        self._answers = [waiter.answer for waiter in waiters]
        self._on_end: Callable[[Batch], None] | None = on_end
        self.was_alone = was_alone
        self.answered = 0  # those that failed or were withdrawn cost next to nothing
        self.uncached = 0  # of those that were answered

    def is_wanted(self, place: int) -> bool:
        """Whether someone still waits for an answer; may be called from any thread."""
        return not self._answers[place].done()

    def settle(self, place: int, answer: Answered | Exception) -> None:
        """Give one query its answer or its error; a client that went away misses nothing.

        Args:
            place: in `jobs`.
            answer: or why there is none; anything but an `AladinError` is answered with 500.
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
        """Say that all is done; the slot is free again."""
        self.fail_rest(WorkerDiedError())

    def fail_rest(self, error: Exception) -> None:
        """Fail all that have no answer yet; the slot does nothing of this batch any more."""
        for future in self._answers:
            if not future.done():
                future.set_exception(error)
        if self._on_end is not None:
            self._on_end(self)
            self._on_end = None
