"""Buckets of tokens."""

from __future__ import annotations

from typing import Any

import pytest
from fastapi import Request
from hypothesis import given
from hypothesis import strategies as st

from aladin_service.http.access import rate_limits
from aladin_service.http.access.rate_limits import (
    ClientBuckets,
    TokenBucket,
    charge,
    client_network,
)
from aladin_service.http.errors import RateLimitedError


def test_a_burst_then_the_rate(clock: Any) -> None:
    bucket = TokenBucket(2.0, 3, clock)
    for _ in range(3):
        bucket.take(1)
    with pytest.raises(RateLimitedError) as refused:
        bucket.take(1)
    assert refused.value.retry_after_s == pytest.approx(0.5)
    clock.now_s += 0.5
    bucket.take(1)
    with pytest.raises(RateLimitedError):
        bucket.take(1)


def test_a_pause_fills_it_no_further_than_the_burst(clock: Any) -> None:
    bucket = TokenBucket(2.0, 3, clock)
    clock.now_s += 1000
    bucket.take(3)
    with pytest.raises(RateLimitedError):
        bucket.take(1)


def test_what_costs_more_than_a_bucket_holds_waits_for_a_full_one_and_leaves_a_debt(
    clock: Any,
) -> None:
    bucket = TokenBucket(1.0, 4, clock)
    bucket.take(10)  # 6 below nothing
    with pytest.raises(RateLimitedError) as refused:
        bucket.take(1)
    assert refused.value.retry_after_s == pytest.approx(7)
    with pytest.raises(RateLimitedError) as refused:
        bucket.take(10)
    assert refused.value.retry_after_s == pytest.approx(10)
    clock.now_s += 10
    bucket.take(10)


@pytest.mark.parametrize("count", [2, 3, 4, 5, 9, 100])
@pytest.mark.parametrize("burst", [1, 2, 4])
def test_a_request_that_has_paid_one_passes_with_a_full_bucket(
    clock: Any, burst: int, count: int
) -> None:
    bucket = TokenBucket(1.0, burst, clock)
    bucket.take(1)
    bucket.take(count - 1, paid=1)
    # All of it was paid.
    with pytest.raises(RateLimitedError) as refused:
        bucket.take(burst)
    assert refused.value.retry_after_s == pytest.approx(count)


@pytest.mark.parametrize("burst", [2, 4])
def test_one_that_waits_as_long_as_told_passes_at_once(clock: Any, burst: int) -> None:
    bucket = TokenBucket(0.5, burst, clock)
    bucket.take(burst)
    clock.now_s += 2  # for the first of ten
    bucket.take(1)
    with pytest.raises(RateLimitedError) as refused:
        bucket.take(9, paid=1)
    # The whole bucket, of which nothing is there.
    assert refused.value.retry_after_s == pytest.approx(2 * burst)
    clock.now_s += refused.value.retry_after_s - 0.01
    bucket.take(1)
    with pytest.raises(RateLimitedError) as again:
        bucket.take(9, paid=1)
    assert again.value.retry_after_s == pytest.approx(2.01)
    clock.now_s += again.value.retry_after_s
    bucket.take(1)
    bucket.take(9, paid=1)


def test_exactly_as_many_tokens_as_it_costs_are_enough(clock: Any) -> None:
    bucket = TokenBucket(1.0, 8, clock)
    bucket.take(5)
    bucket.take(3)  # the last of them
    with pytest.raises(RateLimitedError) as refused:
        bucket.take(1)
    assert refused.value.retry_after_s == 1.0
    clock.now_s += 4
    with pytest.raises(RateLimitedError) as refused:
        bucket.take(5)
    assert refused.value.retry_after_s == 1.0
    bucket.take(4)


def test_a_bucket_is_refilled_exactly_to_the_burst(clock: Any) -> None:
    bucket = TokenBucket(2.0, 8, clock)
    bucket.take(8)
    clock.now_s += 4.0
    bucket.take(8)
    clock.now_s += 4.5  # time for nine
    bucket.take(8)
    with pytest.raises(RateLimitedError) as refused:
        bucket.take(1)
    assert refused.value.retry_after_s == 0.5


def test_a_refusal_and_time_that_stands_still_take_nothing(clock: Any) -> None:
    bucket = TokenBucket(1.0, 4, clock)
    bucket.take(2)
    for _ in range(3):
        with pytest.raises(RateLimitedError) as refused:
            bucket.take(3)
        assert refused.value.retry_after_s == 1.0
    clock.now_s += 0.25  # refused: what came until then stays
    with pytest.raises(RateLimitedError) as refused:
        bucket.take(3)
    assert refused.value.retry_after_s == 0.75
    clock.now_s += 0.75
    bucket.take(3)


def test_a_debt_is_paid_off_before_anything_is_given(clock: Any) -> None:
    bucket = TokenBucket(1.0, 4, clock)
    bucket.take(10)  # 6 below nothing
    clock.now_s += 6
    with pytest.raises(RateLimitedError) as refused:
        bucket.take(1)
    assert refused.value.retry_after_s == 1.0
    clock.now_s += 1
    bucket.take(1)


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
        try:
            bucket.take(count)
        except RateLimitedError as refused:
            # Who waits as long as told is let in.
            now_s += refused.retry_after_s + 1e-6
            bucket.take(count)
        taken += count
        largest = max(largest, count)
        # A last one may leave a debt of what it costs beyond the burst.
        assert taken <= burst + per_s * now_s + max(0, largest - burst) + 1e-6


def test_clients_do_not_share_a_bucket_but_a_network_does(clock: Any) -> None:
    buckets = ClientBuckets(1.0, 1, clock)
    assert buckets.of("10.0.0.1") is not buckets.of("10.0.0.2")
    assert buckets.of("10.0.0.1") is buckets.of("10.0.0.1")
    assert buckets.of("2001:db8::1") is buckets.of("2001:db8::ffff:1")
    assert buckets.of("2001:db8::1") is not buckets.of("2001:db8:0:1::1")


@pytest.mark.parametrize(
    ("address", "network"),
    [
        ("10.0.0.1", "10.0.0.1"),
        ("::ffff:10.0.0.1", "10.0.0.1"),
        ("2001:db8:1:2:3:4:5:6", "2001:db8:1:2::/64"),
        ("fe80::1%eth0", "fe80::/64"),
        ("", ""),
        ("unix:", ""),
        ("10.0.0.256", ""),
        ("alice" * 1000, ""),
    ],
)
def test_whom_an_address_stands_for(address: str, network: str) -> None:
    assert client_network(address) == network


def test_only_so_many_clients_are_remembered(clock: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rate_limits, "_MAX_CLIENTS", 3)
    buckets = ClientBuckets(1.0, 1, clock)
    first, second = buckets.of("10.0.0.1"), buckets.of("10.0.0.2")
    buckets.of("10.0.0.3")
    assert buckets.of("10.0.0.1") is first  # the one that was not seen for longest is forgotten
    buckets.of("10.0.0.4")
    assert buckets.of("10.0.0.1") is first
    assert buckets.of("10.0.0.2") is not second


def test_as_many_clients_as_there_is_room_for_are_all_remembered(
    clock: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(rate_limits, "_MAX_CLIENTS", 3)
    buckets = ClientBuckets(2.0, 5, clock)
    known = [buckets.of(name) for name in ("10.0.0.1", "10.0.0.2", "10.0.0.3")]
    assert [buckets.of(name) for name in ("10.0.0.1", "10.0.0.2", "10.0.0.3")] == known
    assert (known[0].per_s, known[0].burst) == (2.0, 5)
    buckets.of("10.0.0.4")  # the oldest gives way, and no other
    assert [buckets.of(name) for name in ("10.0.0.2", "10.0.0.3")] == known[1:]
    with pytest.raises(RateLimitedError):
        known[1].take(6)
        known[1].take(1)


def of_request(limit: TokenBucket | None, count: int) -> None:
    """Charge a request that has paid one on its way in."""
    if limit is not None:
        limit.take(1)
    charge(Request({"type": "http", "state": {"limit": limit}}), count)


@pytest.mark.parametrize(("count", "left"), [(0, 9), (1, 9), (2, 8), (10, 0), (11, -1), (30, -20)])
def test_a_request_costs_what_it_holds(clock: Any, count: int, left: int) -> None:
    bucket = TokenBucket(1.0, 10, clock)
    of_request(bucket, count)
    with pytest.raises(RateLimitedError) as refused:
        bucket.take(10)
    assert refused.value.retry_after_s == pytest.approx(10 - left)


def test_without_a_limit_nothing_costs_anything() -> None:
    of_request(None, 1000)
