"""The queue of queries: bounded, fair, and taken out in batches.

How many queries may be in the service at a time is adapted to how long answers take, so that those
that are admitted are answered soon.
"""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from aladin_network.errors import NoWorkerError, OverloadedError, ShuttingDownError, WorkerDiedError
from aladin_service.observe.metrics import Metrics
from aladin_service.search.job import (
    QUEUE_NAMES,
    EncodeJob,
    QueuedWork,
    QueueName,
    WorkAnswer,
    queue_of,
)
from aladin_service.settings import ServiceSettings

# Smallest factor by which one answer shrinks the limit: a single slow batch may be chance.
_LEAST_SHARE = 0.5

# A query should take at most this many times the time of a lone query. The service promises ten
# times; the margin is for what the limit learns too late.
_WAIT_FACTOR = 7.0
# Lower bound of that time: below it, thread scheduling dominates.
_LEAST_BOUND_S = 0.02
# Weight of the newest lone query in the moving average of their times.
_NEWEST = 0.2


class AdmissionLimit:
    """Number of queries that may wait or run, adapted to how long answers take.

    The limit grows slowly and shrinks fast. By Little's law, the time of an answer is proportional
    to the number of queries in the service, so answers that take too long by half mean too many
    queries by half. Only observed times count, which reflect a slower machine, a network with other
    batch sizes and other load on the processors alike.
    """

    def __init__(self, least: int, most: int) -> None:
        """Start at the highest limit.

        Args:
            least: Lowest limit.
            most: Highest limit.
        """
        self._least = min(least, most)
        self._most = most
        self._limit = float(most)
        self._settled_s = 0.0
        self._has_refused = False  # since the last answer

    def admits(self, count: int) -> bool:
        """Return whether another query may enter beside `count` that wait or run."""
        self._has_refused |= count >= int(self._limit)
        return count < int(self._limit)

    def observe(self, took_s: float, bound_s: float, now_s: float) -> None:
        """Adapt the limit to the time that an answer took.

        Args:
            took_s: Seconds from the arrival of the query to its answer.
            bound_s: Seconds that the answer should take at most.
            now_s: Current time of a monotonic clock, in seconds.
        """
        if took_s > bound_s:
            # Queries admitted before the last change are still being answered.
            if now_s - took_s >= self._settled_s:
                share = max(_LEAST_SHARE, bound_s / took_s)
                self._limit = max(float(self._least), self._limit * share)
                self._settled_s = now_s
        elif self._has_refused:
            self._limit = min(float(self._most), self._limit + 1)
        self._has_refused = False


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
    jobs: list[QueuedWork]
    started_s: float
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
            settings: Provides `max_batch`, `batch_wait_ms`, `max_waiting` and `max_wait_ms`.
            metrics: Counts batches and waiting queries.
        """
        self._max_batch = settings.max_batch
        self._batch_wait_s = settings.batch_wait_ms / 1000
        self._max_waiting = settings.max_waiting
        self._max_wait_s = None if settings.max_wait_ms is None else settings.max_wait_ms / 1000
        self._metrics = metrics
        self._queues: dict[QueueName, deque[QueuedQuery]] = {name: deque() for name in QUEUE_NAMES}
        for name, waiting in self._queues.items():
            metrics.watch_queue(name, waiting.__len__)
        self._lone_s: dict[QueueName, float] = {}
        self._limit = AdmissionLimit(
            least=settings.max_batch, most=settings.max_batch + settings.max_waiting
        )
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
        queue = job.queue if isinstance(job, EncodeJob) else queue_of(job.query)
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
        present = self.waiting + sum(len(batch.jobs) for batch in self._running)
        if ahead < 0 or (ahead < self._max_waiting and self._limit.admits(present)):
            return None
        return OverloadedError(round(self._bound_s(queue), 3))

    async def next_batch(self) -> Batch | None:
        """Wait for queries and take a batch; the caller answers it and calls `Batch.finish`.

        Returns:
            Queries of one tower, or None if the queue is closed and empty.
        """
        self._pulling += 1
        try:
            while True:
                now = time.monotonic()
                waits_s = 0.0 if self._closed else self._batch_wait_s
                ready_s: dict[QueueName, float] = {
                    queue: each[0].since_s + (0.0 if len(each) >= self._max_batch else waits_s)
                    for queue, each in self._queues.items()
                    if each
                }
                chosen = min(ready_s, key=ready_s.__getitem__, default=None)
                if chosen is not None and ready_s[chosen] <= now:
                    break
                if chosen is None and self._closed:
                    return None
                turn = asyncio.get_running_loop().create_future()
                self._idle.append(turn)
                try:
                    async with asyncio.timeout(None if chosen is None else ready_s[chosen] - now):
                        await turn
                except TimeoutError:
                    pass
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
        taken = [waiters.popleft() for _ in range(min(len(waiters), self._max_batch))]
        was_alone = len(taken) == 1 and not self._running and not self.waiting
        jobs = [waiter.job for waiter in taken]
        self._running.add(batch := Batch(chosen, taken, jobs, now, self._end, was_alone=was_alone))
        self._metrics.batch(chosen, len(taken))
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
        lone_s = max(self._lone_s.get(other, 0.0) for other in present)
        return max(_WAIT_FACTOR * lone_s, _LEAST_BOUND_S)

    def _end(self, batch: Batch) -> None:
        self._running.discard(batch)
        if not batch.answered:
            return
        now = time.monotonic()
        if batch.uncached:
            # Only a query that has the service to itself may raise the time of a lone query: under
            # load all queries take longer, and the bound derived from this time must not grow with
            # the load. No batch takes less than a lone query.
            took_s = now - batch.started_s
            known_s = self._lone_s.get(batch.queue, took_s)
            if batch.was_alone and not self._running and not self.waiting:
                self._lone_s[batch.queue] = known_s + _NEWEST * (took_s - known_s)
            else:
                self._lone_s[batch.queue] = min(known_s, took_s)
        first_since_s = min(waiter.since_s for waiter in batch.waiters)
        self._limit.observe(now - first_since_s, self._bound_s(batch.queue), now)

    def _wake_one(self) -> None:
        while self._idle:
            turn = self._idle.popleft()
            if not turn.done():
                turn.set_result(None)
                return
