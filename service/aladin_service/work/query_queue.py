"""How many queries may be in the service at a time, so that those that are in are answered soon.

Queries that one slot answers together.

Where queries wait until a slot takes them, batch by batch: bounded, fair, in lanes.
"""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import get_args

from aladin_network.errors import NoWorkerError, OverloadedError, ShuttingDownError, WorkerDiedError
from aladin_service.observe.metrics import Metrics
from aladin_service.queries import PhotoQuery, Query, RegionsQuery, TextQuery
from aladin_service.search.job import Answered, QueueName, SearchJob
from aladin_service.settings import ServiceSettings

# Of the limit, when answers take too long: not less at once, for one slow batch may be chance.
_LEAST_SHARE = 0.5


class AdmissionLimit:
    """Follows how long answers take: a limit that grows slowly and shrinks fast.

    Answers take longer in proportion to how many queries are in, by Little's law, so too long by
    half means too many by half. Nothing is foretold: a machine that becomes slower, a network with
    other batches or a neighbour on the processors shows in the answers themselves.
    """

    def __init__(self, least: int, most: int) -> None:
        """Begin with `most`.

        Args:
            least: never lower than this.
            most: never higher.
        """
        self._least = min(least, most)
        self._most = most
        self._limit = float(most)
        self._settled_s = 0.0
        self._has_refused = False  # since the last answer

    def admits(self, count: int) -> bool:
        """Say whether one more query may come in, beside those that wait or run."""
        self._has_refused |= count >= int(self._limit)
        return count < int(self._limit)

    def observe(self, took_s: float, bound_s: float, now_s: float) -> None:
        """Learn from an answer.

        Args:
            took_s: from when its query came.
            bound_s: how long it should take at most.
            now_s: by any clock that does not go back.
        """
        if took_s > bound_s:
            # Those that were let in before the last change still come out late.
            if now_s - took_s >= self._settled_s:
                share = max(_LEAST_SHARE, bound_s / took_s)
                self._limit = max(float(self._least), self._limit * share)
                self._settled_s = now_s
        elif self._has_refused:
            self._limit = min(float(self._most), self._limit + 1)
        self._has_refused = False


@dataclass(frozen=True, eq=False)
class QueuedQuery:
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
        lane: QueueName,
        waiters: Sequence[QueuedQuery],
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
        self.lane: QueueName = lane
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


QUEUE_NAMES: tuple[QueueName, ...] = get_args(QueueName)

# As many queries are let in as are answered within this many times a lone query's time. Ten times
# is what the service promises; the rest is room for what a limit learns too late.
_WAIT_FACTOR = 7.0
# But answers may always take this long: below, a thread that runs late decides.
_LEAST_BOUND_S = 0.02
# Share of the newest lone query in their average time.
_NEWEST = 0.2


def queue_of(query: Query) -> QueueName:
    """Return where a query waits: with those that are encoded by the same tower, or by none."""
    match query:
        case TextQuery():
            return "text"
        case PhotoQuery() | RegionsQuery():
            return "photo"
        case _:
            return "encoded"


class QueryQueue:
    """Bounded lanes of queries, and the batches that slots take from them.

    A slot takes what waits as soon as it is free, so batches form by themselves while all slots
    are busy, and a query that finds a free slot is not held up. The lane whose first query has
    waited longest is next. Not thread-safe: everything is called on one event loop.
    """

    def __init__(self, settings: ServiceSettings, metrics: Metrics) -> None:
        """Wait for queries and for slots.

        Args:
            settings: `max_batch`, `batch_wait_ms`, `max_waiting` and `max_wait_ms`.
            metrics: where batches and waiting queries are counted.
        """
        self._max_batch = settings.max_batch
        self._batch_wait_s = settings.batch_wait_ms / 1000
        self._max_waiting = settings.max_waiting
        self._max_wait_s = None if settings.max_wait_ms is None else settings.max_wait_ms / 1000
        self._metrics = metrics
        self._lanes: dict[QueueName, deque[QueuedQuery]] = {lane: deque() for lane in QUEUE_NAMES}
        self._lone_s: dict[QueueName, float] = {}
        self._limit = AdmissionLimit(
            least=settings.max_batch, most=settings.max_batch + settings.max_waiting
        )
        self._running: set[Batch] = set()
        self._idle: deque[asyncio.Future[None]] = deque()
        self._pulling = 0  # slots in `next_batch`
        self._closed = False
        self._no_worker = False

    @property
    def waiting(self) -> int:
        """Number of queries that no slot has taken yet."""
        return sum(map(len, self._lanes.values()))

    async def answer(self, job: SearchJob) -> Answered:
        """Wait for a query's answer; cancelling it withdraws the query.

        Raises:
            AladinError: whatever became of it.
            OverloadedError: too many wait already, or too long; at once.
            NoWorkerError: nobody takes queries out of the lines.
            ShuttingDownError: the lines are closed.
        """
        lane = queue_of(job.query)
        if self._closed:
            raise ShuttingDownError
        refusal = self.refusal(lane)
        if refusal is not None:
            raise refusal
        waiter = QueuedQuery(job, asyncio.get_running_loop().create_future(), time.monotonic())
        self._lanes[lane].append(waiter)
        self._count(lane)
        self._wake_one()
        try:
            return await waiter.answer
        except asyncio.CancelledError:
            waiter.answer.cancel()
            if waiter in self._lanes[lane]:
                self._lanes[lane].remove(waiter)
                self._count(lane)
            raise

    def refusal(self, lane: QueueName) -> OverloadedError | NoWorkerError | None:
        """Say why one more query of a lane would be refused now; None: it would be taken."""
        if self._no_worker:
            return NoWorkerError()
        # Each slot that is free takes at least one of those that wait.
        ahead = self.waiting - self._pulling
        if ahead < 0 or (ahead < self._max_waiting and self._limit.admits(self._count_in())):
            return None
        return OverloadedError(round(self._bound_s(lane), 3))

    async def next_batch(self) -> Batch | None:
        """Wait for queries and take them; the caller answers them, then calls `Batch.finish`.

        Returns:
            Queries of one lane; None when the lines are closed and empty.
        """
        self._pulling += 1
        try:
            while True:
                now = time.monotonic()
                lane, ready_s = self._next_lane()
                if lane is not None and ready_s <= now:
                    return self._take(lane, now)
                if lane is None and self._closed:
                    return None
                await self._wait(None if lane is None else ready_s - now)
        finally:
            self._pulling -= 1

    def set_worker_missing(self, missing: bool) -> None:  # it is all that is said
        """Refuse all queries, those that wait as well, while no worker takes any."""
        self._no_worker = missing
        if missing:
            self.fail_waiting(NoWorkerError())

    def close(self) -> None:
        """Take no more queries; slots get what waits, then None."""
        self._closed = True
        while self._idle:
            self._wake_one()

    def fail_waiting(self, error: Exception) -> None:
        """Fail all queries that no slot has taken."""
        for lane, waiters in self._lanes.items():
            for waiter in waiters:
                if not waiter.answer.done():
                    waiter.answer.set_exception(error)
            waiters.clear()
            self._count(lane)

    def _bound_s(self, lane: QueueName) -> float:
        """How long a query of a lane should take at most, waiting included.

        The slowest kind of query that is about sets the measure: a text that comes while photos
        are encoded has to wait for one of those.
        """
        if self._max_wait_s is not None:
            return self._max_wait_s
        about: set[QueueName] = {lane, *(batch.lane for batch in self._running)}
        about.update(other for other in QUEUE_NAMES if self._lanes[other])
        lone_s = max(self._lone_s.get(other, 0.0) for other in about)
        return max(_WAIT_FACTOR * lone_s, _LEAST_BOUND_S)

    def _count_in(self) -> int:
        return self.waiting + sum(len(batch.jobs) for batch in self._running)

    def _next_lane(self) -> tuple[QueueName | None, float]:
        """Return the lane that is to be served next, and from when on (now, if it is full)."""
        chosen: QueueName | None = None
        chosen_ready_s = 0.0
        for lane, waiters in self._lanes.items():
            if not waiters:
                continue
            since_s = waiters[0].since_s
            is_full = len(waiters) >= self._max_batch or self._closed
            ready_s = since_s if is_full else since_s + self._batch_wait_s
            if chosen is None or ready_s < chosen_ready_s:
                chosen, chosen_ready_s = lane, ready_s
        return chosen, chosen_ready_s

    def _take(self, lane: QueueName, now: float) -> Batch:
        waiters = self._lanes[lane]
        taken = [waiters.popleft() for _ in range(min(len(waiters), self._max_batch))]
        was_alone = len(taken) == 1 and not self._running and not self.waiting
        batch = Batch(lane, taken, now, self._end, was_alone=was_alone)
        self._running.add(batch)
        self._count(lane)
        self._metrics.batch(lane, len(taken))
        if self.waiting:
            self._wake_one()
        return batch

    def _end(self, batch: Batch) -> None:
        self._running.discard(batch)
        if not batch.answered:
            return
        now = time.monotonic()
        if batch.uncached:
            self._learn_lone(batch, now - batch.started_s)
        bound_s = self._bound_s(batch.lane)
        self._limit.observe(now - batch.first_since_s, bound_s, now)

    def _learn_lone(self, batch: Batch, seconds: float) -> None:
        """Learn what a query takes that has the service to itself, and is not remembered.

        Only such queries may raise it: while many come, all take longer, and the bound that is
        made of it must not grow with the load. No batch takes less than a lone query.
        """
        known_s = self._lone_s.get(batch.lane, seconds)
        if batch.was_alone and not self._running and not self.waiting:
            self._lone_s[batch.lane] = known_s + _NEWEST * (seconds - known_s)
        else:
            self._lone_s[batch.lane] = min(known_s, seconds)

    async def _wait(self, seconds: float | None) -> None:
        """Wait until there may be something to take."""
        turn = asyncio.get_running_loop().create_future()
        self._idle.append(turn)
        try:
            async with asyncio.timeout(seconds):
                await turn
        except TimeoutError:
            pass
        except asyncio.CancelledError:
            if turn.done() and not turn.cancelled():
                self._wake_one()  # this slot was called and ends: another one has to come
            raise
        finally:
            if turn in self._idle:
                self._idle.remove(turn)

    def _wake_one(self) -> None:
        while self._idle:
            turn = self._idle.popleft()
            if not turn.done():
                turn.set_result(None)
                return

    def _count(self, lane: QueueName) -> None:
        self._metrics.waiting(lane, len(self._lanes[lane]))
