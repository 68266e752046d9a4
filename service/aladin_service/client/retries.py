"""Retry rules: which failures, how long to wait, when to give up. No input or output."""

from __future__ import annotations

import email.utils
import random
import time
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Literal

import httpx

# Conditions for sending again. "always": a repetition is harmless. "unless_begun": only if the
# service cannot have started the request. "never": the bytes can be read only once.
Again = Literal["always", "unless_begun", "never"]

_BUSY = 429
_NOT_READY = 503
# Codes of status 503 after which a change may have been made completely or partly.
_MAYBE_DONE = frozenset({"worker_died", "engine_unavailable"})


@dataclass(frozen=True, kw_only=True)
class RetryPolicy:
    """Limits of the retries of a client.

    Attributes:
        attempts: Largest number of attempts per call, including the first; 1 disables retries.
        total_s: Limit from the call to its answer, including waits; no wait starts that would
            exceed it.
        first_wait_s: Upper limit of the first wait; it doubles from wait to wait.
        max_wait_s: Upper limit of any wait that the service did not request.
    """

    attempts: int = 6
    total_s: float = 60.0
    first_wait_s: float = 0.1
    max_wait_s: float = 5.0


class Attempts:
    """The attempts of one call: decides after each failure how long to wait, or to give up."""

    def __init__(
        self,
        policy: RetryPolicy,
        again: Again,
        *,
        clock: Callable[[], float] = time.monotonic,
        jitter: Callable[[], float] = random.random,
    ) -> None:
        """Start the time limit.

        Args:
            policy: Limits of the retries.
            again: Condition for sending the request again.
            clock: Clock in seconds with an arbitrary starting point.
            jitter: Function that returns a new number in [0, 1) at each call, so that clients that
                were rejected together do not retry together.
        """
        self._policy = policy
        self._again: Again = again
        self._clock = clock
        self._jitter = jitter
        self._made = 0
        self._ends_s = clock() + policy.total_s

    @property
    def left_s(self) -> float:
        """Seconds until the time limit of the call, 0 if it has passed."""
        return max(0.0, self._ends_s - self._clock())

    def after_error(self, error: httpx.RequestError) -> float | None:
        """Return how long to wait after an attempt without an answer, or None to give up.

        An answer that takes too long is not asked for again: the service is busy with it.
        """
        unsent = isinstance(error, (httpx.ConnectError, httpx.ConnectTimeout))
        broken = isinstance(error, (httpx.NetworkError, httpx.RemoteProtocolError))
        if unsent or (broken and self._again == "always"):
            return self._wait(None)
        return None

    def after_answer(self, status: int, code: str, retry_after_s: float | None) -> float | None:
        """Return how long to wait after an error answer, or None if it is final.

        Args:
            status: HTTP status.
            code: Code of the error.
            retry_after_s: Wait requested by the service; used even if it is long.
        """
        maybe_done = code in _MAYBE_DONE and self._again != "always"
        if status not in (_BUSY, _NOT_READY) or maybe_done:
            return None
        return self._wait(retry_after_s)

    def _wait(self, asked_s: float | None) -> float | None:
        self._made += 1
        if self._again == "never" or self._made >= self._policy.attempts:
            return None
        policy = self._policy
        # The exponent is limited so that no float overflows; the cap applies long before.
        upper_s = min(policy.max_wait_s, policy.first_wait_s * 2.0 ** min(self._made - 1, 60))
        wait_s = self._jitter() * upper_s
        if asked_s is not None:
            wait_s = asked_s + self._jitter() * policy.first_wait_s
        return wait_s if wait_s < self.left_s else None


def parse_retry_after(value: str | None, now: datetime | None = None) -> float | None:
    """Parse a ``Retry-After`` header, which contains seconds or a date.

    Args:
        value: Value of the header, or None without one.
        now: Current time for dates, or None to read the clock.

    Returns:
        Seconds from now, at least 0; None where there is nothing to be read.
    """
    if value is None:
        return None
    if value.strip().isdecimal():
        return float(value)
    try:
        date = email.utils.parsedate_to_datetime(value)
    except ValueError:
        return None
    if date.tzinfo is None:
        date = date.replace(tzinfo=UTC)
    return max(0.0, (date - (now or datetime.now(UTC))).total_seconds())
