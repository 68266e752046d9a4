"""When a client asks again."""

from __future__ import annotations

from datetime import UTC, datetime

import httpx
import pytest

from aladin_service.client.connection import Again, Attempts, RetryPolicy, parse_retry_after

POLICY = RetryPolicy(attempts=6, total_s=100.0, first_wait_s=0.1, max_wait_s=1.0)


class Clock:
    now_s = 50.0

    def __call__(self) -> float:
        return self.now_s


def attempts(
    again: Again = "always", jitter: float = 1.0, policy: RetryPolicy = POLICY
) -> Attempts:
    return Attempts(policy, again, clock=Clock(), jitter=lambda: jitter)


def test_waits_double_up_to_the_cap_and_end() -> None:
    tries, early = attempts(), attempts(jitter=0.25)
    waits = [tries.after_answer(429, "overloaded", None) for _ in range(6)]
    assert waits == [0.1, 0.2, 0.4, 0.8, 1.0, None]
    waits = [early.after_error(httpx.ConnectError("")) for _ in range(3)]
    assert waits == [0.025, 0.05, 0.1]  # anywhere below their upper end
    many = RetryPolicy(attempts=5000, total_s=1e9, first_wait_s=0.1, max_wait_s=1.0)
    endless = attempts(policy=many)
    assert [endless.after_answer(503, "", None) for _ in range(4000)][-1] == 1.0


def test_a_client_waits_as_long_as_the_service_asks_unless_it_is_too_late() -> None:
    clock = Clock()
    tries = Attempts(POLICY, "always", clock=clock, jitter=lambda: 1.0)
    assert tries.after_answer(429, "overloaded", 7.0) == pytest.approx(7.1)
    assert tries.after_answer(503, "index_not_ready", 0.0) == pytest.approx(0.1)
    clock.now_s += 94.0
    assert tries.left_s == pytest.approx(6.0)
    assert tries.after_answer(429, "overloaded", 7.0) is None
    assert tries.after_answer(429, "overloaded", 5.0) == pytest.approx(5.1)
    clock.now_s += 7.0
    assert tries.left_s == 0
    assert tries.after_answer(429, "overloaded", None) is None


@pytest.mark.parametrize(
    ("failure", "again", "waits"),
    [
        *(((status, "whatever"), "always", False) for status in (400, 401, 404, 409, 413, 422)),
        *(((status, "whatever"), "always", False) for status in (500, 502)),
        ((503, "index_not_ready"), "unless_begun", True),
        # A change whose service ended or did not answer may have been made.
        ((503, "worker_died"), "always", True),
        ((503, "worker_died"), "unless_begun", False),
        ((503, "engine_unavailable"), "always", True),
        ((503, "engine_unavailable"), "unless_begun", False),
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
def test_an_attempt_is_made_again_only_where_it_helps_and_does_no_harm(
    failure: tuple[int, str] | httpx.RequestError, again: Again, waits: bool
) -> None:
    tries = attempts(again)
    if isinstance(failure, httpx.RequestError):
        wait = tries.after_error(failure)
    else:
        wait = tries.after_answer(*failure, None)
    assert wait == (0.1 if waits else None)


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
