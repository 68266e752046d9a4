"""The slowest queries of about the last hour, in little memory, for who looks after the service.

An hour is long enough to find the query that somebody complains of, and short enough that a cold
start, or a load that is over, does not hide what is slow now.
"""

from __future__ import annotations

import heapq
import time
from collections import deque
from collections.abc import Callable
from typing import Literal, NamedTuple

from aladin_index.search.results import TookMs
from aladin_network.types import Target
from aladin_service.queries import (
    EmbeddingQuery,
    ItemQuery,
    PhotoQuery,
    RegionsQuery,
    TextQuery,
)
from aladin_service.search.job import Answered, SearchJob

# Each period keeps its own slowest ones, so that what goes with the oldest period was hidden by
# nothing that stays: the list is exact for the periods that it is of.
PERIOD_S = 300.0
PERIODS = 12
# Longer texts are cut: the beginning tells which query it was.
MAX_TEXT_CHARS = 200

Clock = Callable[[], float]
Kind = Literal["text", "photo", "regions", "item", "embedding"]


class SlowQuery(NamedTuple):
    """A query, what it asked for, and where its time went.

    Attributes:
        at_s: when it came, in seconds since 1970.
        request_id: of the request that it was, or was a part of; None outside any.
        kind: what it searched with.
        asked: its text, cut, or the item's id; None for what has neither.
        photo_bytes: length of its photo; None where it had none.
        target: what it searched.
        k: hits wanted.
        offset: hits passed over.
        candidates: asked for; None: the index's own number.
        filtered: whether it had a filter.
        explain: whether it wanted the evidence.
        status: of HTTP, that it would be answered with alone; 499: the client hung up before.
        total_ms: from when it came to its answer.
        queue_ms: of that, until a worker took it; None where it was not answered.
        took_ms: by part; None where it was not answered.
        batch: queries that were encoded together with it; None where it was not answered.
        cached: whether its encoding was remembered.
        degraded: what was asked for and left out.
    """

    at_s: float
    request_id: str | None
    kind: Kind
    asked: str | None
    photo_bytes: int | None
    target: Target
    k: int
    offset: int
    candidates: int | None
    filtered: bool
    explain: bool
    status: int
    total_ms: float
    queue_ms: float | None
    took_ms: TookMs | None
    batch: int | None
    cached: bool
    degraded: tuple[str, ...]


class _Period(NamedTuple):
    number: int
    slowest: list[tuple[float, int, SlowQuery]]  # a heap, the fastest of them first


class SlowQueries:
    """Keeps the slowest queries; what is faster costs one comparison."""

    def __init__(self, limit: int, clock: Clock = time.monotonic, now: Clock = time.time) -> None:
        """Know of none.

        Args:
            limit: the most to be told; each period keeps as many. 0: none are kept.
            clock: by which they grow old, in seconds; the one of `SearchJob.received_s`.
            now: seconds since 1970.
        """
        self.limit = limit
        self._clock = clock
        self._now = now
        self._periods: deque[_Period] = deque()
        self._serial = 0  # among equals, the earlier stays

    def answered(self, job: SearchJob, answered: Answered, request_id: str | None) -> None:
        """Take note of a query that was answered.

        Args:
            job: the query.
            answered: its answer.
            request_id: of its request.
        """
        self._note(job, answered.took_ms.total, answered, 200, request_id)

    def failed(self, job: SearchJob, status: int, request_id: str | None) -> None:
        """Take note of a query that was not answered.

        Args:
            job: the query.
            status: of HTTP, for its error.
            request_id: of its request.
        """
        self._note(job, 1000 * (self._clock() - job.received_s), None, status, request_id)

    def slowest(self) -> list[SlowQuery]:
        """Return those to be told of, the slowest first."""
        self._forget()
        kept = [entry for period in self._periods for entry in period.slowest]
        return [query for _, _, query in sorted(kept, reverse=True)[: self.limit]]

    @property
    def window_s(self) -> float:
        """Seconds that the list goes back now."""
        return PERIOD_S * PERIODS + self._clock() % PERIOD_S

    def _note(
        self,
        job: SearchJob,
        total_ms: float,
        answered: Answered | None,
        status: int,
        request_id: str | None,
    ) -> None:
        """Keep a query if it is one of the slowest of this period so far."""
        if self.limit == 0:
            return
        slowest = self._period().slowest
        if len(slowest) >= self.limit and total_ms <= slowest[0][0]:
            return
        at_s = self._now() - total_ms / 1000
        self._serial += 1
        query = _describe(job, at_s, total_ms, answered, status, request_id)
        entry = (total_ms, -self._serial, query)
        if len(slowest) < self.limit:
            heapq.heappush(slowest, entry)
        else:
            heapq.heapreplace(slowest, entry)

    def _period(self) -> _Period:
        number = int(self._clock() // PERIOD_S)
        if not self._periods or self._periods[-1].number != number:
            self._periods.append(_Period(number, []))
            self._forget()
        return self._periods[-1]

    def _forget(self) -> None:
        oldest = int(self._clock() // PERIOD_S) - PERIODS
        while self._periods and self._periods[0].number < oldest:
            self._periods.popleft()


def _describe(
    job: SearchJob,
    at_s: float,
    total_ms: float,
    answered: Answered | None,
    status: int,
    request_id: str | None,
) -> SlowQuery:
    query, options = job.query, job.options
    kind: Kind
    asked: str | None = None
    match query:
        case TextQuery(text):
            kind, asked = "text", text
        case PhotoQuery():
            kind = "photo"
        case RegionsQuery():
            kind = "regions"
        case ItemQuery(item_id):
            kind, asked = "item", item_id
        case EmbeddingQuery():
            kind = "embedding"
    if asked is not None and len(asked) > MAX_TEXT_CHARS:
        asked = f"{asked[: MAX_TEXT_CHARS - 1]}…"
    return SlowQuery(
        at_s=at_s,
        request_id=request_id,
        kind=kind,
        asked=asked,
        photo_bytes=len(query.data) if isinstance(query, PhotoQuery | RegionsQuery) else None,
        target=job.target,
        k=options.k,
        offset=options.offset,
        candidates=options.candidates,
        filtered=bool(options.filter),
        explain=options.explain,
        status=status,
        total_ms=total_ms,
        queue_ms=None if answered is None else answered.queue_ms,
        took_ms=None if answered is None else answered.took_ms,
        batch=None if answered is None else answered.batch,
        cached=answered is not None and answered.cached,
        degraded=() if answered is None else answered.degraded,
    )
