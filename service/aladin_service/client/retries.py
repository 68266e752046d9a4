"""When to ask again: after what, how long to wait, and when to give up. No input or output here."""

from __future__ import annotations

import email.utils
import random
import time
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Literal

import httpx

# What may be sent again. "always": it does no harm to be done twice. "unless_begun": only what
# the service cannot have begun. "never": its bytes can be read once.
Again = Literal["always", "unless_begun", "never"]

_BUSY = 429
_NOT_READY = 503
# Those of 503 after which a change may have been made, or a part of it.
_MAYBE_DONE = frozenset({"worker_died", "engine_unavailable"})


@dataclass(frozen=True, kw_only=True)
class RetryPolicy:
    """How patient a client is.

    Attributes:
        attempts: of one call at most, the first included; 1: never ask again.
        total_s: from the call to its answer, waits included; no wait begins that would exceed it.
        first_wait_s: upper end of the first wait; it doubles from wait to wait.
        max_wait_s: upper end of any wait that the service did not ask for.
    """

    attempts: int = 6
    total_s: float = 60.0
    first_wait_s: float = 0.1
    max_wait_s: float = 5.0


class Attempts:
    """The attempts of one call: says after each failure how long to wait, or to give up."""

    def __init__(
        self,
        policy: RetryPolicy,
        again: Again,
        *,
        clock: Callable[[], float] = time.monotonic,
        jitter: Callable[[], float] = random.random,
    ) -> None:
        """Begin now.

        Args:
            policy: how patient to be.
            again: what may be sent again.
            clock: seconds, from whenever.
            jitter: a number in [0, 1), another one each time: clients that were refused
                together must not come back together.
        """
        self._policy = policy
        self._again: Again = again
        self._clock = clock
        self._jitter = jitter
        self._made = 0
        self._ends_s = clock() + policy.total_s

    @property
    def left_s(self) -> float:
        """Seconds until the call has to be over; 0 when it is."""
        return max(0.0, self._ends_s - self._clock())

    def after_error(self, error: httpx.RequestError) -> float | None:
        """Return how long to wait after an attempt without an answer; None: do not try again.

        An answer that takes too long is not asked for again: the service is busy with it.
        """
        unsent = isinstance(error, (httpx.ConnectError, httpx.ConnectTimeout))
        broken = isinstance(error, (httpx.NetworkError, httpx.RemoteProtocolError))
        if unsent or (broken and self._again == "always"):
            return self._wait(None)
        return None

    def after_answer(self, status: int, code: str, retry_after_s: float | None) -> float | None:
        """Return how long to wait after an answer that is an error; None: it is final.

        Args:
            status: of HTTP.
            code: of the error.
            retry_after_s: what the service asks for; it is waited for even where it is long.
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
        # Of a power that no float overflows at: far above, the cap decides anyway.
        upper_s = min(policy.max_wait_s, policy.first_wait_s * 2.0 ** min(self._made - 1, 60))
        wait_s = self._jitter() * upper_s
        if asked_s is not None:
            wait_s = asked_s + self._jitter() * policy.first_wait_s
        return wait_s if wait_s < self.left_s else None


def parse_retry_after(value: str | None, now: datetime | None = None) -> float | None:
    """Read a ``Retry-After`` header, of seconds or a date.

    Args:
        value: of the header; None: there is none.
        now: for the dates; None: now.

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
