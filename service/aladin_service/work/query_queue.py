"""The queue of queries: bounded, fair, and taken out in batches.

A query is admitted if the batches before it and its own should end in time, by how long batches
have taken lately; those that are admitted are therefore answered soon.
"""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from heapq import heapify, heapreplace
from typing import Any

from aladin_network.errors import NoWorkerError, OverloadedError, ShuttingDownError, WorkerDiedError
from aladin_service.observe.metrics import Metrics
from aladin_service.search.job import (
    QUEUE_NAMES,
    EncodeJob,
    QueuedWork,
    QueueName,
    WorkAnswer,
)
from aladin_service.settings import ServiceSettings
from aladin_service.work.batch_times import BatchTimes

# A query should take at most this many times the time of a lone query. The service promises eight
# times; the margin is for HTTP, and for what else takes the processors meanwhile.
_WAIT_FACTOR = 7
# Lower bound of that time: below it, thread scheduling dominates.
_LEAST_BOUND_S = 0.02


@dataclass(frozen=True, eq=False)
class QueuedQuery:
    """A waiting query and the future of its answer.

    Attributes:
        job: The query, or a document to encode.
        answer: Future of the answer; cancelled when the client no longer waits.
        since_s: Time of arrival in the queue, by `time.monotonic`.
    """

    job: QueuedWork
    answer: asyncio.Future[Any]
    since_s: float


@dataclass(eq=False)
class Batch:
    """Queries taken out of one queue; the slot that took them has to settle each of them.

    All methods but `is_wanted` are called on the event loop. The slot calls `deliver` or `finish`
    at the end.

    Attributes:
        queue: Queue that the queries were taken from.
        waiters: Queries, at least one.
        jobs: The queries' jobs.
        started_s: Time at which they were taken, by `time.monotonic`.
        queues: All queues, whose queries no slot has taken.
        on_end: Called once when the slot has finished the batch.
        was_alone: Whether the batch is a single query while nothing else ran or waited.
        answered: Number of answers, without failed and withdrawn queries, which cost next to
            nothing.
        uncached: Number of answered queries whose encoding was not cached.
    """

    queue: QueueName
    waiters: Sequence[QueuedQuery]
    jobs: list[QueuedWork]
    started_s: float
    queues: Mapping[QueueName, deque[QueuedQuery]]
    on_end: Callable[[Batch], None] | None
    was_alone: bool = False
    answered: int = 0
    uncached: int = 0

    def is_wanted(self, place: int) -> bool:
        """Return whether a client still waits for an answer; thread-safe."""
        return not self.waiters[place].answer.done()

    def settle(self, place: int, answer: WorkAnswer | Exception) -> None:
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

    async def deliver(self, answers: Sequence[WorkAnswer | Exception | None]) -> None:
        """Settle all queries and finish.

        Args:
            answers: By place the answer or an error, or None for a query that was withdrawn.
        """
        for place, answer in enumerate(answers):
            if answer is not None:
                self.settle(place, answer)
        if not any(self.queues.values()):
            # The answers go first: in the loop's next turn their requests send them, and at its end
            # they are written. Where queries wait, the worker comes first.
            await asyncio.sleep(0)
            await asyncio.sleep(0)
        self.finish()

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


class QueryQueue:
    """Bounded queues of queries by tower, from which worker slots take batches.

    A slot takes what waits as soon as it is free: batches form while all slots are busy, and a
    query that finds a free slot is not delayed. The queue whose first query has waited longest is
    served next. Not thread-safe: all methods are called on one event loop.
    """

    def __init__(self, settings: ServiceSettings, metrics: Metrics) -> None:
        """Create empty queues.

        Args:
            settings: Provides `max_batch`, `max_waiting` and `max_wait_ms`.
            metrics: Counts batches and waiting queries.
        """
        self._max_batch = settings.max_batch
        self._max_waiting = settings.max_waiting
        self._max_wait_s = None if settings.max_wait_ms is None else settings.max_wait_ms / 1000
        self._metrics = metrics
        self._queues: dict[QueueName, deque[QueuedQuery]] = {name: deque() for name in QUEUE_NAMES}
        for name, waiting in self._queues.items():
            metrics.watch_queue(name, waiting.__len__)
        self._times: dict[QueueName, BatchTimes] = {name: BatchTimes() for name in QUEUE_NAMES}
        self._running: set[Batch] = set()
        self._idle: deque[asyncio.Future[None]] = deque()
        self._pulling = 0  # slots that wait in `next_batch`
        self._closed = False
        self._no_worker = False

    @property
    def waiting(self) -> int:
        """Number of queries that no slot has taken yet."""
        return sum(map(len, self._queues.values()))

    async def answer(self, job: QueuedWork) -> Any:
        """Queue a query or a document and wait for its answer; cancelling the wait withdraws it.

        Raises:
            AladinError: If the query fails; any error of the query.
            OverloadedError: If too many queries wait, or would wait for too long; raised at once.
            NoWorkerError: If there is no worker.
            ShuttingDownError: If the queue is closed.
        """
        queue = job.queue if isinstance(job, EncodeJob) else job.query.queue
        if self._closed:
            raise ShuttingDownError
        if (refusal := self.refusal(queue)) is not None:
            raise refusal
        waiter = QueuedQuery(job, asyncio.get_running_loop().create_future(), time.monotonic())
        self._queues[queue].append(waiter)
        self._wake_one()
        try:
            return await waiter.answer
        except asyncio.CancelledError:
            waiter.answer.cancel()
            if waiter in self._queues[queue]:
                self._queues[queue].remove(waiter)
            raise

    def refusal(self, queue: QueueName) -> OverloadedError | NoWorkerError | None:
        """Return the error with which one more query would be refused, or None if admitted."""
        if self._no_worker:
            return NoWorkerError()
        # Each idle slot takes at least one of the waiting queries.
        ahead = self.waiting - self._pulling
        if ahead < 0:
            return None
        bound_s = self._bound_s(queue)
        if ahead < self._max_waiting:
            # So few are answered in time even one after another, whatever was measured last: the
            # batches during an outage of a database, for example, took as long as its timeout.
            present = self.waiting + sum(len(batch.jobs) for batch in self._running)
            if present < _WAIT_FACTOR or self._expected_s(queue, bound_s) <= bound_s:
                return None
        return OverloadedError(round(bound_s, 3))

    async def next_batch(self) -> Batch | None:
        """Wait for queries and take a batch; the caller answers it and calls `Batch.finish`.

        Returns:
            Queries of one tower, or None if the queue is closed and empty.
        """
        self._pulling += 1
        try:
            while True:
                since_s: dict[QueueName, float] = {
                    name: each[0].since_s for name, each in self._queues.items() if each
                }
                if since_s:
                    chosen = min(since_s, key=since_s.__getitem__)
                    count = len(self._queues[chosen])
                    if count > 1:
                        count = min(count, self._most_together(chosen, self._bound_s(chosen)))
                    break
                if self._closed:
                    return None
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
        finally:
            self._pulling -= 1
        waiters = self._queues[chosen]
        taken = [waiters.popleft() for _ in range(count)]
        was_alone = len(taken) == 1 and not self._running and not self.waiting
        jobs = [waiter.job for waiter in taken]
        batch = Batch(
            chosen, taken, jobs, time.monotonic(), self._queues, self._end, was_alone=was_alone
        )
        self._running.add(batch)
        if self.waiting:
            self._wake_one()
        return batch

    def set_worker_missing(self, missing: bool) -> None:
        """Refuse all queries, including those that wait, while there is no worker."""
        self._no_worker = missing
        if missing:
            self.fail_waiting(NoWorkerError())

    def close(self) -> None:
        """Accept no more queries; slots still get those that wait, then None."""
        self._closed = True
        while self._idle:
            self._wake_one()

    def fail_waiting(self, error: Exception) -> None:
        """Fail all queries that no slot has taken."""
        for waiters in self._queues.values():
            for waiter in waiters:
                if not waiter.answer.done():
                    waiter.answer.set_exception(error)
            waiters.clear()

    def _bound_s(self, queue: QueueName) -> float:
        """Return how long a query should take at most, waiting included.

        The slowest kind of query in the service determines the bound, because a text that arrives
        while photos are encoded has to wait for one of them.
        """
        if self._max_wait_s is not None:
            return self._max_wait_s
        present: set[QueueName] = {queue, *(batch.queue for batch in self._running)}
        present.update(other for other in QUEUE_NAMES if self._queues[other])
        lone_s = max(self._times[other].lone_s for other in present)
        return max(_WAIT_FACTOR * lone_s, _LEAST_BOUND_S)

    def _most_together(self, queue: QueueName, bound_s: float) -> int:
        """Return the size of the largest batches that let a query be answered in time.

        Slots that take batches in turn begin one in every share of a batch's time; on average, a
        query waits half of that until its own begins.
        """
        slots = max(1, self._pulling + len(self._running))
        return self._times[queue].largest(bound_s / (1 + 0.5 / slots), self._max_batch)

    def _expected_s(self, queue: QueueName, bound_s: float) -> float:
        """Return the longest time to an answer in the batch that one more query would join."""
        now = time.monotonic()
        free_s = [0.0] * self._pulling  # time until each slot can take another batch
        for batch in self._running:
            end_s = batch.started_s + self._times[batch.queue].expect(len(batch.jobs))
            free_s.append(max(0.0, end_s - now))
        free_s = free_s or [0.0]  # no worker yet
        heapify(free_s)
        own_s = 0.0
        for name, waiting in self._queues.items():
            most, times = self._most_together(name, bound_s), self._times[name]
            full, rest = divmod(len(waiting), most)
            if name == queue:
                waited_s = now - waiting[full * most].since_s if rest else 0.0
                own_s, rest = waited_s + times.expect(rest + 1), 0
            for size in [most] * full + [rest] * (rest > 0):
                heapreplace(free_s, free_s[0] + times.expect(size))
        return free_s[0] + own_s

    def _end(self, batch: Batch) -> None:
        self._running.discard(batch)
        self._metrics.batch(batch.queue, len(batch.jobs))
        if batch.answered:
            self._times[batch.queue].observe(
                batch.answered,
                time.monotonic() - batch.started_s,
                alone=batch.was_alone and not self._running and not self.waiting,
                cached=not batch.uncached,
            )

    def _wake_one(self) -> None:
        while self._idle:
            turn = self._idle.popleft()
            if not turn.done():
                turn.set_result(None)
                return
