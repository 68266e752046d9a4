"""Which queries are admitted, and how many form a batch: by how long batches have taken lately.

A query is admitted if the batches before it and its own should end in time; those that are admitted
are therefore answered soon.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from dataclasses import dataclass
from heapq import heapify, heapreplace

from aladin_network.errors import NoWorkerError, OverloadedError, WorkerDiedError
from aladin_service.observe.metrics import Metrics
from aladin_service.search.job import QUEUE_NAMES, QueuedWork, QueueName, WorkAnswer
from aladin_service.settings import ServiceSettings
from aladin_service.work.queues import Taken, WaitingQueues

# A query should take at most this many times the time of a lone query. The service promises eight
# times; the margin is for HTTP, and for what else takes the processors meanwhile.
_WAIT_FACTOR = 7
# Lower bound of that time: below it, thread scheduling dominates.
_LEAST_BOUND_S = 0.02
# Weight of the newest batch in an average: other load on the processors counts after five batches,
# less than half a second; a single slow batch hardly does.
_NEWEST = 0.2
# Variance of sizes, in squared queries, that a measured slope is worth as much as the assumed one.
_ASSUMED_VARIANCE = 0.5
# Largest factor by which a time counts as longer than expected: a single long one may be chance.
_MOST_RISE = 4.0
# Expected times are longer than the average by so many average errors.
_ERRORS = 1.0


class BatchTimes:
    """Seconds that a batch of one queue takes, by its size, learnt from the latest batches.

    The estimate is a line through the average size and time of the latest batches. Its slope is
    that by which times have varied with sizes; as long as sizes hardly vary, as under a constant
    load, it is that of a time in proportion to the size, which is too steep rather than too flat.
    Only what was measured lately counts, because a table of the times of each size is wrong as soon
    as something else uses the processors.

    Attributes:
        lone_s: Seconds of a query that has the service to itself; before there has been one, those
            of the fastest batch; 0.0 without measurements.
    """

    def __init__(self) -> None:
        self.lone_s = 0.0
        self._has_lone = False
        self._seen = 0
        self._size, self._seconds = 1.0, 0.0  # averages
        self._variance, self._covariance = 0.0, 0.0  # of the sizes; of the sizes and the seconds
        self._slope_s = 0.0  # time of one more query
        self._error_s = 0.0  # average distance of a time from the line

    def observe(self, size: int, seconds: float, *, alone: bool, cached: bool) -> None:
        """Learn from a batch of which `size` queries were answered within `seconds` of its start.

        `alone`: a single query, beside which nothing ran or waited; `cached`: all encodings came
        from the cache.
        """
        counted_s = min(seconds, _MOST_RISE * self.expect(size)) if self._seen else seconds
        self._seen += 1
        newest = max(_NEWEST, 1 / self._seen)
        by_size, by_s = size - self._size, counted_s - self._seconds
        if self._seen > 1:
            error_s = abs(by_s - self._slope_s * by_size)
            self._error_s += newest * (error_s - self._error_s)
        self._size += newest * by_size
        self._seconds += newest * by_s
        # A new average moves towards the new value: what remains of the two distances' product.
        rest = 1 - newest
        self._variance = rest * (self._variance + newest * by_size**2)
        self._covariance = rest * (self._covariance + newest * by_size * by_s)
        each_s = self._seconds / self._size
        slope_s = (self._covariance + _ASSUMED_VARIANCE * each_s) / (
            self._variance + _ASSUMED_VARIANCE
        )
        self._slope_s = min(max(slope_s, 0.0), each_s)
        if cached:
            return
        # Under load all queries take longer, and what is admitted must not grow with the load. Only
        # a query by itself raises the time of a lone query, and only a batch of several, which
        # takes longer than one query, shows that it is too high.
        if alone:
            known_s = self.lone_s if self._has_lone else seconds
            self.lone_s = known_s + _NEWEST * (min(seconds, _MOST_RISE * known_s) - known_s)
            self._has_lone = True
        elif not self._has_lone or size > 1:
            self.lone_s = min(self.lone_s or seconds, seconds)

    def expect(self, size: int) -> float:
        """Return the seconds that a batch should take, and a margin by how much times vary."""
        by_size = self._slope_s * (size - self._size)
        return self._seconds + by_size + _ERRORS * self._error_s

    def largest(self, seconds: float, most: int) -> int:
        """Return the size of the largest batch that should take at most `seconds`, at least 1."""
        spare_s, slope_s = seconds - self.expect(1), self._slope_s
        if spare_s >= slope_s * (most - 1):
            return most
        return max(1, 1 + int(spare_s / slope_s)) if slope_s > 0 else 1


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


class QueryQueue(WaitingQueues[QueueName]):
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
