"""When a client asks again."""

from __future__ import annotations

from datetime import UTC, datetime

import httpx
import pytest

from aladin_service.client.connection import Again, Attempts, RetryPolicy, parse_retry_after

POLICY = RetryPolicy(attempts=6, total_s=100.0, first_wait_s=0.1, max_wait_s=1.0)


class Clock:
    """Seconds that pass when they are told to."""

    now_s = 50.0

    def __call__(self) -> float:
        return self.now_s


def attempts(
    policy: RetryPolicy = POLICY, again: Again = "always", jitter: float = 1.0
) -> tuple[Attempts, Clock]:
    clock = Clock()
    return Attempts(policy, again, clock=clock, jitter=lambda: jitter), clock


def test_waits_double_up_to_the_cap_and_end() -> None:
    tries, _ = attempts()
    waits = [tries.after_answer(429, "overloaded", None) for _ in range(6)]
    assert waits == [0.1, 0.2, 0.4, 0.8, 1.0, None]


def test_waits_are_anywhere_below_their_upper_end() -> None:
    tries, _ = attempts(jitter=0.25)
    waits = [tries.after_error(httpx.ConnectError("")) for _ in range(3)]
    assert waits == [0.025, 0.05, 0.1]


def test_a_client_waits_as_long_as_the_service_asks_and_a_little_more() -> None:
    tries, _ = attempts()
    assert tries.after_answer(429, "overloaded", 7.0) == pytest.approx(7.1)
    assert tries.after_answer(503, "index_not_ready", 0.0) == pytest.approx(0.1)


def test_no_wait_begins_that_would_end_too_late() -> None:
    tries, clock = attempts()
    clock.now_s += 94.0
    assert tries.left_s == pytest.approx(6.0)
    assert tries.after_answer(429, "overloaded", 7.0) is None
    assert tries.after_answer(429, "overloaded", 5.0) == pytest.approx(5.1)
    clock.now_s += 7.0
    assert tries.left_s == 0
    assert tries.after_answer(429, "overloaded", None) is None


@pytest.mark.parametrize("status", [400, 401, 404, 409, 413, 422, 500, 502])
def test_answers_that_another_attempt_would_not_change(status: int) -> None:
    tries, _ = attempts()
    assert tries.after_answer(status, "whatever", 1.0) is None


@pytest.mark.parametrize(
    ("error", "again", "waits"),
    [
        (httpx.ConnectError(""), "always", True),
        (httpx.ConnectError(""), "unless_begun", True),
        (httpx.ConnectTimeout(""), "unless_begun", True),
        (httpx.ConnectError(""), "never", False),
        (httpx.ReadError(""), "always", True),
        (httpx.RemoteProtocolError(""), "always", True),
        (httpx.ReadError(""), "unless_begun", False),
        (httpx.RemoteProtocolError(""), "unless_begun", False),
        (httpx.ReadTimeout(""), "always", False),
        (httpx.UnsupportedProtocol(""), "always", False),
    ],
)
def test_a_broken_attempt_is_made_again_only_where_it_does_no_harm(
    error: httpx.RequestError, again: Again, waits: bool
) -> None:
    tries, _ = attempts(again=again)
    assert (tries.after_error(error) is not None) == waits


@pytest.mark.parametrize("code", ["worker_died", "engine_unavailable"])
def test_a_change_whose_service_ended_or_did_not_answer_may_have_been_made(code: str) -> None:
    for again, wait in (("always", 0.1), ("unless_begun", None)):
        tries, _ = attempts(again=again)
        assert tries.after_answer(503, code, None) == wait
        assert tries.after_answer(503, "index_not_ready", None) is not None


def test_many_attempts_overflow_nothing() -> None:
    tries, _ = attempts(RetryPolicy(attempts=5000, total_s=1e9, first_wait_s=0.1, max_wait_s=1.0))
    assert [tries.after_answer(503, "", None) for _ in range(4000)][-1] == 1.0


@pytest.mark.parametrize(
    ("header", "seconds"),
    [
        (None, None),
        ("0", 0.0),
        ("120", 120.0),
        (" 3 ", 3.0),
        ("Wed, 21 Oct 2026 07:28:30 GMT", 30.0),
        ("Wed, 21 Oct 2026 09:28:30 +0200", 30.0),
        ("Wed, 21 Oct 2026 07:28:30", 30.0),
        ("Wed, 21 Oct 2026 07:27:00 GMT", 0.0),
        ("soon", None),
        ("-1", None),
        ("", None),
    ],
)
def test_retry_after_is_seconds_or_a_date(header: str | None, seconds: float | None) -> None:
    now = datetime(2026, 10, 21, 7, 28, tzinfo=UTC)
    assert parse_retry_after(header, now) == seconds
