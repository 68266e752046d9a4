"""The slowest queries of about the last hour, in little memory, for operators.

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
from aladin_service.search.job import (
    Answered,
    ItemQuery,
    PartsQuery,
    PhotoQuery,
    RegionsQuery,
    SearchJob,
    TextQuery,
)

# Each period keeps its own slowest queries, so that dropping the oldest period never loses entries
# of later ones: the list is exact for the periods that it covers.
PERIOD_S = 300.0
PERIODS = 12
# Longer texts are cut: the beginning is enough to recognize a query.
MAX_TEXT_CHARS = 200

Clock = Callable[[], float]
Kind = Literal["text", "photo", "regions", "item", "parts"]


class SlowQuery(NamedTuple):
    """A query, its parameters, and where its time went.

    Attributes:
        at_s: Arrival time in seconds since 1970.
        request_id: ID of the request that the query was or belonged to, or None outside of
            requests.
        kind: Kind of the query.
        asked: Text of the query, shortened, or the item's ID, or None if it has neither.
        photo_bytes: Length of the query's photo, or None if it had none.
        target: Collection that was searched.
        k: Number of requested hits.
        offset: Number of hits skipped before the first returned one.
        candidates: Requested number of candidates, "all", or None for the number of the index.
        filtered: Whether the query had a filter.
        explain: Whether the evidence was requested.
        status: HTTP status of the query, if it were answered alone; 499 if the client disconnected
            before.
        total_ms: Time from arrival to answer.
        queue_ms: Part of `total_ms` until a worker took the query, or None if it was not answered.
        took_ms: Time of each part, or None if the query was not answered.
        batch: Number of queries that were encoded together with it, or None if it was not answered.
        cached: Whether its encoding was cached.
        degraded: Requested features that were skipped.
    """

    at_s: float
    request_id: str | None
    kind: Kind
    asked: str | None
    photo_bytes: int | None
    target: Target
    k: int
    offset: int
    candidates: int | Literal["all"] | None
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
    """Keeps the slowest queries; a faster query costs one comparison."""

    def __init__(self, limit: int, clock: Clock = time.monotonic, now: Clock = time.time) -> None:
        """Start with an empty list.

        Args:
            limit: Maximum number of queries to report; each period keeps as many. No queries are
                kept if it is 0.
            clock: Clock for the age of queries, in seconds; the same one as for
                `SearchJob.received_s`.
            now: Clock in seconds since 1970.
        """
        self.limit = limit
        self._clock = clock
        self._now = now
        self._periods: deque[_Period] = deque()
        self._serial = 0  # among equals, the earlier stays

    def answered(self, job: SearchJob, answered: Answered, request_id: str | None) -> None:
        """Record a query that was answered.

        Args:
            job: The query.
            answered: Answer to the query.
            request_id: ID of the request.
        """
        self._note(job, answered.took_ms.total, answered, 200, request_id)

    def failed(self, job: SearchJob, status: int, request_id: str | None) -> None:
        """Record a query that failed.

        Args:
            job: The query.
            status: HTTP status of the error.
            request_id: ID of the request.
        """
        self._note(job, 1000 * (self._clock() - job.received_s), None, status, request_id)

    def slowest(self) -> list[SlowQuery]:
        """Return the recorded queries, slowest first."""
        self._forget()
        kept = [entry for period in self._periods for entry in period.slowest]
        return [query for _, _, query in sorted(kept, reverse=True)[: self.limit]]

    @property
    def window_s(self) -> float:
        """Number of seconds that the list currently covers."""
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
        number = int(self._clock() // PERIOD_S)
        if not self._periods or self._periods[-1].number != number:
            self._periods.append(_Period(number, []))
            self._forget()
        slowest = self._periods[-1].slowest
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

    def _forget(self) -> None:
        oldest = int(self._clock() // PERIOD_S) - PERIODS
        while self._periods and self._periods[0].number < oldest:
            self._periods.popleft()


def _name(query: TextQuery | PhotoQuery | ItemQuery) -> str:
    match query:
        case TextQuery(text):
            return text
        case ItemQuery(item_id):
            return item_id
        case PhotoQuery():
            return "photo"


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
        case PartsQuery(parts):
            kind = "parts"
            asked = ", ".join(f"{part.role} {_name(part.query)}" for part in parts)
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
