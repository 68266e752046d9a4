"""The slowest queries that are kept, against a plain list of all of them."""

from __future__ import annotations

import random
from datetime import UTC, datetime

import pytest

from aladin_index.search.options import SearchOptions
from aladin_index.search.results import TookMs
from aladin_service.http.routes.index import build_slow_queries
from aladin_service.observe.slow_queries import MAX_TEXT_CHARS, PERIOD_S, PERIODS, SlowQueries
from aladin_service.search.job import (
    Answered,
    ItemQuery,
    PhotoQuery,
    Query,
    SearchJob,
    TextQuery,
)

EPOCH_S = 1_700_000_000.0


class Clocks:
    """Time that only passes when a test says so."""

    def __init__(self) -> None:
        """Begin at 0."""
        self.s = 0.0

    def clock(self) -> float:
        """Seconds since the start."""
        return self.s

    def now(self) -> float:
        """Seconds since 1970."""
        return EPOCH_S + self.s


@pytest.fixture
def clocks() -> Clocks:
    return Clocks()


def kept_by(clocks: Clocks, limit: int = 3) -> SlowQueries:
    return SlowQueries(limit, clocks.clock, clocks.now)


def job(query: Query | None = None, received_s: float = 0.0, **options: object) -> SearchJob:
    return SearchJob(
        query=query or TextQuery("a dog"),
        target="images",
        options=SearchOptions(**options),  # pyright: ignore[reportArgumentType]
        received_s=received_s,
    )


def answer(total_ms: float, **changes: object) -> Answered:
    took = TookMs(decode=0.0, encode=1.0, retrieve=0.25, rerank=0.5, total=total_ms)
    return Answered(b"{}", 1, (), took)._replace(**changes)  # pyright: ignore[reportArgumentType]


def note(kept: SlowQueries, *totals_ms: float) -> None:
    for total_ms in totals_ms:
        kept.answered(job(), answer(total_ms), None)


def totals(kept: SlowQueries) -> list[float]:
    return [query.total_ms for query in kept.slowest()]


def test_the_slowest_are_kept_the_slowest_first(clocks: Clocks) -> None:
    kept = kept_by(clocks)
    note(kept, 5, 1, 9, 3, 7)
    assert totals(kept) == [9, 7, 5]


def test_as_many_as_wanted_and_no_more_in_all_periods(clocks: Clocks) -> None:
    kept = kept_by(clocks, limit=4)
    draw = random.Random(0)
    seen: list[tuple[float, float]] = []
    for _ in range(3000):
        clocks.s += draw.random() * 6
        total_ms = draw.random()
        note(kept, total_ms)
        seen.append((clocks.s, total_ms))
    oldest_s = (clocks.s // PERIOD_S - PERIODS) * PERIOD_S
    young = sorted((total_ms for at_s, total_ms in seen if at_s >= oldest_s), reverse=True)
    assert totals(kept) == young[:4]
    assert 0 < len(young) < len(seen)


def test_what_is_older_than_an_hour_goes_and_what_it_hid_comes_back(clocks: Clocks) -> None:
    kept = kept_by(clocks)
    note(kept, 100, 90, 80)
    clocks.s = 10 * PERIOD_S
    note(kept, 1, 2, 3)
    assert totals(kept) == [100, 90, 80]
    clocks.s = (PERIODS + 1) * PERIOD_S - 0.001
    assert totals(kept) == [100, 90, 80]
    clocks.s = (PERIODS + 1) * PERIOD_S
    assert totals(kept) == [3, 2, 1]  # though nothing came since
    clocks.s *= 10
    assert totals(kept) == []


def test_among_equals_the_earlier_stays(clocks: Clocks) -> None:
    kept = kept_by(clocks, limit=2)
    for request_id in "abc":
        kept.answered(job(), answer(5.0), request_id)
    assert [query.request_id for query in kept.slowest()] == ["a", "b"]


def test_none_are_kept_where_none_are_wanted(clocks: Clocks) -> None:
    kept = kept_by(clocks, limit=0)
    note(kept, 1000)
    kept.failed(job(), 500, None)
    assert kept.slowest() == []


def test_a_query_is_described(clocks: Clocks) -> None:
    kept = kept_by(clocks)
    clocks.s = 50.0
    asked = job(TextQuery("a dog"), k=7, offset=14, candidates=500, filter={"a": 1}, explain=True)
    answered = answer(2000.0, queue_ms=30.0, batch=4, degraded=("rerank_timeout",), cached=True)
    kept.answered(asked, answered, "request")
    (query,) = kept.slowest()
    assert query._asdict() == {
        "at_s": EPOCH_S + 48,
        "request_id": "request",
        "kind": "text",
        "asked": "a dog",
        "photo_bytes": None,
        "target": "images",
        "k": 7,
        "offset": 14,
        "candidates": 500,
        "filtered": True,
        "explain": True,
        "status": 200,
        "total_ms": 2000.0,
        "queue_ms": 30.0,
        "took_ms": answered.took_ms,
        "batch": 4,
        "cached": True,
        "degraded": ("rerank_timeout",),
    }


@pytest.mark.parametrize(
    ("query", "told"),
    [
        (TextQuery("two dogs"), ("text", "two dogs", None)),
        (PhotoQuery(b"12345", "secret name.jpg"), ("photo", None, 5)),
        (ItemQuery("dogs/red#1"), ("item", "dogs/red#1", None)),
    ],
)
def test_what_was_asked_is_named_as_what_it_is(
    clocks: Clocks, query: Query, told: tuple[str, str | None, int | None]
) -> None:
    kept = kept_by(clocks)
    kept.answered(job(query), answer(1.0), None)
    (kept_query,) = kept.slowest()
    assert (kept_query.kind, kept_query.asked, kept_query.photo_bytes) == told
    assert "secret" not in repr(kept_query)


def test_a_long_text_is_cut(clocks: Clocks) -> None:
    kept = kept_by(clocks)
    kept.answered(job(TextQuery("x" * MAX_TEXT_CHARS)), answer(2.0), None)
    kept.answered(job(ItemQuery("y" * 5000)), answer(1.0), None)
    whole, cut = (query.asked for query in kept.slowest())
    assert whole == "x" * MAX_TEXT_CHARS
    assert cut == "y" * (MAX_TEXT_CHARS - 1) + "…"


def test_one_that_failed_took_until_it_failed(clocks: Clocks) -> None:
    kept = kept_by(clocks)
    clocks.s = 12.5
    kept.failed(job(received_s=10.0), 503, "request")
    (query,) = kept.slowest()
    assert (query.total_ms, query.at_s, query.status) == (2500.0, EPOCH_S + 10, 503)
    assert (query.took_ms, query.queue_ms, query.batch) == (None, None, None)


def test_the_answer_says_how_far_it_goes_back(clocks: Clocks) -> None:
    kept = kept_by(clocks)
    clocks.s = 100 * PERIOD_S + 60
    note(kept, 4)
    told = build_slow_queries(kept, datetime.fromtimestamp(clocks.now(), UTC))
    assert told.limit == 3
    assert told.since.timestamp() == EPOCH_S + 88 * PERIOD_S
    assert [query.total_ms for query in told.queries] == [4]
    assert told.queries[0].at == datetime.fromtimestamp(clocks.now() - 0.004, UTC)
