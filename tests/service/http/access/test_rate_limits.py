"""Buckets of tokens."""

from __future__ import annotations

import pytest
from fastapi import Request
from hypothesis import given
from hypothesis import strategies as st

from aladin_service.http.access import rate_limits
from aladin_service.http.access.rate_limits import (
    ClientBuckets,
    TokenBucket,
    charge,
)
from aladin_service.http.errors import RateLimitedError
from tests.service.http.conftest import Clock

# What is done to a bucket: seconds that pass, tokens that are taken, and the seconds to wait that
# a refusal tells, or None where there is none.
Steps = list[tuple[float, int, float | None]]


def wait_of(bucket: TokenBucket, count: int, paid: int = 0) -> float | None:
    """Take tokens; return how long to wait, or None if they were given."""
    try:
        bucket.take(count, paid=paid)
    except RateLimitedError as refused:
        return refused.retry_after_s
    return None


@pytest.mark.parametrize(
    ("per_s", "burst", "steps"),
    [
        (2.0, 3, [(0, 1, None)] * 3 + [(0, 1, 0.5), (0.5, 1, None), (0, 1, 0.5)]),
        (2.0, 3, [(1000, 3, None), (0, 1, 0.5)]),
        # The last token is given, and the one after it is not.
        (1.0, 8, [(0, 5, None), (0, 3, None), (0, 1, 1.0), (4, 5, 1.0), (0, 4, None)]),
        # Refilled to the burst and no further.
        (2.0, 8, [(0, 8, None), (4.0, 8, None), (4.5, 8, None), (0, 1, 0.5)]),
        # Refusals, and time that stands still, take nothing.
        (1.0, 4, [(0, 2, None)] + [(0, 3, 1.0)] * 3 + [(0.25, 3, 0.75), (0.75, 3, None)]),
        # What costs more than a bucket holds waits for a full one, and leaves a debt of 6, which is
        # paid off before anything is given.
        (1.0, 4, [(0, 10, None), (0, 1, 7), (0, 10, 10), (10, 10, None)]),
        (1.0, 4, [(0, 10, None), (6, 1, 1.0), (1, 1, None)]),
    ],
)
def test_a_burst_then_the_rate_and_each_refusal_tells_when_to_come_back(
    per_s: float, burst: int, steps: Steps
) -> None:
    clock = Clock()
    bucket = TokenBucket(per_s, burst, clock)
    for passed_s, count, wait_s in steps:
        clock.now_s += passed_s
        assert wait_of(bucket, count) == (None if wait_s is None else pytest.approx(wait_s))


@pytest.mark.parametrize("count", [2, 3, 4, 5, 9, 100])
@pytest.mark.parametrize("burst", [1, 2, 4])
def test_a_request_that_has_paid_one_passes_with_a_full_bucket(burst: int, count: int) -> None:
    bucket = TokenBucket(1.0, burst, Clock())
    assert wait_of(bucket, 1) is None
    assert wait_of(bucket, count - 1, paid=1) is None
    assert wait_of(bucket, burst) == pytest.approx(count)  # all of it was paid


@given(
    st.lists(st.tuples(st.floats(0, 3), st.integers(1, 6)), max_size=40),
    st.floats(0.1, 10),
    st.integers(1, 5),
)
def test_never_more_than_the_burst_and_the_rate(
    asks: list[tuple[float, int]], per_s: float, burst: int
) -> None:
    now_s = 0.0
    bucket = TokenBucket(per_s, burst, lambda: now_s)
    taken = largest = 0
    for pause_s, count in asks:
        now_s += pause_s
        wait_s = wait_of(bucket, count)
        if wait_s is not None:
            # Who waits as long as told is let in.
            now_s += wait_s + 1e-6
            bucket.take(count)
        taken += count
        largest = max(largest, count)
        # A last one may leave a debt of what it costs beyond the burst.
        assert taken <= burst + per_s * now_s + max(0, largest - burst) + 1e-6


def test_clients_have_buckets_of_their_own_and_the_oldest_of_too_many_is_forgotten(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(rate_limits, "_MAX_CLIENTS", 3)
    buckets = ClientBuckets(2.0, 5, Clock())
    names = ("10.0.0.1", "10.0.0.2", "2001:db8::1")
    known = [buckets.of(name) for name in names]
    assert len({id(bucket) for bucket in known}) == 3
    assert (known[0].per_s, known[0].burst) == (2.0, 5)
    assert [buckets.of(name) for name in names] == known
    assert buckets.of("2001:db8::ffff:1") is known[2]  # of the same network
    assert buckets.of("10.0.0.1") is known[0]  # the second is the one not seen for longest
    buckets.of("2001:db8:0:1::1")
    assert [
        buckets.of(name) is bucket for name, bucket in zip(names[::2], known[::2], strict=True)
    ] == [True] * 2
    assert buckets.of("10.0.0.2") is not known[1]
    assert (wait_of(known[0], 5), wait_of(known[0], 1)) == (None, 0.5)


@pytest.mark.parametrize(("count", "left"), [(0, 9), (1, 9), (2, 8), (10, 0), (11, -1), (30, -20)])
def test_a_request_costs_what_it_holds(count: int, left: int) -> None:
    bucket = TokenBucket(1.0, 10, Clock())
    bucket.take(1)  # on its way in
    charge(Request({"type": "http", "state": {"limit": bucket}}), count)
    assert wait_of(bucket, 10) == pytest.approx(10 - left)
    charge(Request({"type": "http", "state": {"limit": None}}), 1000)  # costs nothing
