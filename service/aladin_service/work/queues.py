"""The queues of queries and jobs: bounded, fair, and, for queries, taken out in batches.

A query is admitted if the batches before it and its own should end in time, by how long batches
have taken lately; those that are admitted are therefore answered soon. A job is admitted while few
others wait. All classes are for one event loop only.
"""

from __future__ import annotations

import asyncio
import time
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from heapq import heapify, heapreplace
from typing import Any, ClassVar, Generic, TypeVar, cast

from aladin_network.errors import (
    AladinError,
    NoWorkerError,
    OverloadedError,
    ShuttingDownError,
    WorkerDiedError,
)
from aladin_service.observe.metrics import Metrics
from aladin_service.search.job import (
    QUEUE_NAMES,
    QueuedWork,
    QueueName,
    WorkAnswer,
)
from aladin_service.settings import ServiceSettings
from aladin_service.work.batch_times import BatchTimes
from aladin_service.work.worker import JOB_QUEUES, Job, JobQueueName, Work, without_traceback

T = TypeVar("T")
N = TypeVar("N", bound=str)
W = TypeVar("W", bound=Work)

# A query should take at most this many times the time of a lone query. The service promises eight
# times; the margin is for HTTP, and for what else takes the processors meanwhile.
_WAIT_FACTOR = 7
# Lower bound of that time: below it, thread scheduling dominates.
_LEAST_BOUND_S = 0.02
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


@dataclass(eq=False, kw_only=True)
class Batch(Taken[Sequence[QueuedWork]]):
    """Queries that were taken out of one queue together, or documents.

    Attributes:
        queue: Queue that they were taken from.
        queues: All queues, until the batch is finished.
        was_alone: Whether the batch is a single query while nothing else ran or waited.
        started_s: Time at which they were taken, by `time.monotonic`.
        answered: Number of answers, without failed and withdrawn queries, which cost next to
            nothing.
        uncached: Number of answered queries whose encoding was not cached.
    """

    is_timed = True
    queue: QueueName
    queues: QueryQueue | None
    was_alone: bool
    started_s: float
    answered: int = 0
    uncached: int = 0

    def settle(self, place: int, answer: WorkAnswer | Exception) -> None:
        """Settle one query; any error but an `AladinError` becomes status 500."""
        if not isinstance(answer, Exception):
            self.answered += 1
            self.uncached += not answer.cached
            queue_s = self.started_s - self.work[place].received_s
            answer = answer._replace(queue_ms=1000 * queue_s)
        self.waiting[place].settle(answer)

    async def deliver(self, result: Sequence[WorkAnswer | Exception | None]) -> None:
        for place, answer in enumerate(result):
            if answer is not None:  # the query was withdrawn
                self.settle(place, answer)
        if self.queues is not None and not self.queues.waiting:
            # The answers go first: in the loop's next turn their requests send them, and at its end
            # they are written. Where queries wait, the worker comes first.
            await asyncio.sleep(0)
            await asyncio.sleep(0)
        self.finish()

    def finish(self, error: Exception | None = None) -> None:
        for waiting in self.waiting:
            if not waiting.result.done():
                waiting.settle(error or WorkerDiedError())
        if self.queues is not None:
            self.queues.end(self)
            self.queues = None


class _Queues(ABC, Generic[N]):
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


class JobQueue(_Queues[JobQueueName]):
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


class QueryQueue(_Queues[QueueName]):
    """Queues of queries by tower, from which worker slots take batches.

    A slot takes what waits as soon as it is free: batches form while all slots are busy, and a
    query that finds a free slot is not delayed. The queue whose first query has waited longest is
    served next.
    """

    def __init__(self, settings: ServiceSettings, metrics: Metrics) -> None:
        super().__init__(QUEUE_NAMES)
        self._max_batch = settings.max_batch
        self._max_waiting = settings.max_waiting
        self._max_wait_s = None if settings.max_wait_ms is None else settings.max_wait_ms / 1000
        self._metrics = metrics
        for name, waiting in self._queues.items():
            metrics.watch_queue(name, waiting.__len__)
        self._times: dict[QueueName, BatchTimes] = {name: BatchTimes() for name in QUEUE_NAMES}
        self._running: set[Batch] = set()

    def refusal(self, queue: QueueName) -> OverloadedError | NoWorkerError | None:
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
            present = self.waiting + sum(len(batch.work) for batch in self._running)
            if present < _WAIT_FACTOR or self._expected_s(queue, bound_s) <= bound_s:
                return None
        return OverloadedError(round(bound_s, 3))

    async def next_batch(self) -> Batch | None:
        """Wait for queries and take those of one tower; None once the queue is closed and empty."""
        self._pulling += 1
        try:
            if not await self._come():
                return None
            first_s: dict[QueueName, float] = {
                name: each[0].since_s for name, each in self._queues.items() if each
            }
            chosen = min(first_s, key=first_s.__getitem__)
            count = len(self._queues[chosen])
            if count > 1:
                count = min(count, self._most_together(chosen, self._bound_s(chosen)))
        finally:
            self._pulling -= 1
        taken = [self._queues[chosen].popleft() for _ in range(count)]
        was_alone = count == 1 and not self._running and not self.waiting
        batch = Batch(
            work=[each.work for each in taken],
            waiting=taken,
            queue=chosen,
            queues=self,
            was_alone=was_alone,
            started_s=time.monotonic(),
        )
        self._running.add(batch)
        if self.waiting:
            self._wake_one()
        return batch

    def end(self, batch: Batch) -> None:
        """Learn from a batch that is finished."""
        self._running.discard(batch)
        self._metrics.batch(batch.queue, len(batch.work))
        if batch.answered:
            self._times[batch.queue].observe(
                batch.answered,
                time.monotonic() - batch.started_s,
                alone=batch.was_alone and not self._running and not self.waiting,
                cached=not batch.uncached,
            )

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
            end_s = batch.started_s + self._times[batch.queue].expect(len(batch.work))
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


class Queues:
    """All queues of a service, in which the requests wait, and what its workers take from them."""

    def __init__(self, settings: ServiceSettings, metrics: Metrics) -> None:
        self.queries = QueryQueue(settings, metrics)
        self.jobs: Mapping[JobQueueName, JobQueue] = {
            name: JobQueue(name, min(settings.max_waiting, facts.most_waiting))
            for name, facts in JOB_QUEUES.items()
        }
        self._query_threads = settings.query_threads

    async def call(self, job: Job[T]) -> T:
        """Wait for a job's result in its queue."""
        return await self.jobs[job.queue].answer(job)

    def takes(self) -> dict[str, Callable[[], Awaitable[Taken[Any] | None]]]:
        """Return by name what each thread of a worker waits for its work in."""
        threads: dict[str, Callable[[], Awaitable[Taken[Any] | None]]] = {
            f"query-{number}": self.queries.next_batch for number in range(self._query_threads)
        }
        for name, facts in JOB_QUEUES.items():
            for number in range(facts.threads):
                threads[f"{name}-{number}"] = self.jobs[name].next_job
        return threads

    def set_worker_missing(self, missing: bool) -> None:
        """Refuse everything, including what waits, while there is no worker."""
        for queue in (self.queries, *self.jobs.values()):
            queue.set_worker_missing(missing)

    def close(self) -> None:
        """Accept nothing more, and fail the jobs that wait; queries that wait are still taken."""
        self.queries.close()
        for queue in self.jobs.values():
            queue.close()
            queue.fail_waiting(ShuttingDownError())
