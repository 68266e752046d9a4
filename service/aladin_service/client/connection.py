"""Common parts of both clients: base URL, API key, outcome of an attempt, retries, and errors."""

from __future__ import annotations

import email.utils
import os
import random
import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from importlib.metadata import version
from typing import Any, Literal

import httpx
from pydantic import BaseModel, ValidationError

from aladin_network.errors import ConfigError
from aladin_service.client_errors import (
    ConflictError,
    NoAccessError,
    NotFoundError,
    NotReadyError,
    RefusedInputError,
    ServiceError,
    ServiceUnreachableError,
    TooBusyError,
)

# Conditions for sending again. "always": a repetition is harmless. "unless_begun": only if the
# service cannot have started the request. "never": the bytes can be read only once.
Again = Literal["always", "unless_begun", "never"]

_BUSY = 429
_NOT_READY = 503
# Codes of status 503 after which a change may have been made completely or partly.
_MAYBE_DONE = frozenset({"worker_died", "engine_unavailable"})

_KINDS: Mapping[int, type[ServiceError]] = {
    400: RefusedInputError,
    401: NoAccessError,
    403: NoAccessError,
    404: NotFoundError,
    409: ConflictError,
    413: RefusedInputError,
    415: RefusedInputError,
    422: RefusedInputError,
    429: TooBusyError,
    503: NotReadyError,
}

API_KEY_VARIABLE = "ALADIN_API_KEY"

# The service's own limit for requests that add is 100 items and 24 MiB; a fraction of it keeps each
# request short.
ADD_ITEMS = 32
ADD_BYTES = 8 * 2**20
BATCH_QUERIES = 32
# The service's own limit for a page of items is 200.
LISTED_ITEMS = 200


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
        """Start the time limit."""
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

    def wait_s_after_error(self, error: httpx.RequestError) -> float:
        """Return how long to wait before the next attempt, after one without an answer."""
        wait_s = self.after_error(error)
        if wait_s is None:
            raise unreachable(error) from error
        return wait_s

    def wait_s_after_answer(self, response: httpx.Response) -> float | None:
        """Return how long to wait before the next attempt, or None if the answer is a success."""
        if response.is_success:
            return None
        error = error_in(response)
        wait_s = self.after_answer(error.status, error.code, error.retry_after_s)
        if wait_s is None:
            raise error
        return wait_s

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
        """Return how long to wait after an error answer, or None if it is final."""
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
    """Parse a ``Retry-After`` header, which contains seconds or a date."""
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


class ErrorDetail(BaseModel):
    """One error as reported by the service."""

    code: str
    message: str
    request_id: str | None = None


class _Body(BaseModel):
    error: ErrorDetail


def error_of(status: int, detail: ErrorDetail, retry_after_s: float | None = None) -> ServiceError:
    """Make the error for a status."""
    kind = _KINDS.get(status, ServiceError)
    return kind(status, detail.code, detail.message, detail.request_id, retry_after_s)


def read_error(status: int, body: bytes, retry_after_s: float | None) -> ServiceError:
    """Make the error that an answer reports."""
    try:
        detail = _Body.model_validate_json(body).error
    except ValidationError:
        code = f"http_{status}"
        detail = ErrorDetail(code=code, message=f"status {status} without an error message")
    return error_of(status, detail, retry_after_s)


def connection_settings(url: str, api_key: str | None, timeout_s: float) -> dict[str, Any]:
    """Return the arguments of the httpx client of a service."""
    try:
        parsed = httpx.URL(url)
    except httpx.InvalidURL as error:
        raise ConfigError(f"invalid URL {url!r}: {error}") from None
    if parsed.scheme not in ("http", "https") or not parsed.host:
        raise ConfigError(f"expected a URL such as http://127.0.0.1:8000, got {url!r}")
    headers = {"User-Agent": f"aladin-search/{version('aladin-search')}"}
    key = os.environ.get(API_KEY_VARIABLE) if api_key is None else api_key
    if key:
        headers["Authorization"] = f"Bearer {key}"
    return {"base_url": parsed, "headers": headers, "timeout": httpx.Timeout(timeout_s)}


def patience(timeout_s: float) -> RetryPolicy:
    """Return the retry policy for waiting until a service has started."""
    return RetryPolicy(attempts=sys.maxsize, total_s=timeout_s, first_wait_s=0.05, max_wait_s=1.0)


def error_in(response: httpx.Response) -> ServiceError:
    """Return the error that an answer reports."""
    retry_after_s = parse_retry_after(response.headers.get("retry-after"))
    error = read_error(response.status_code, response.content, retry_after_s)
    if error.code == "unauthorized" and "authorization" not in response.request.headers:
        # The service cannot know where the client reads the key from.
        error.args = (f"{error.message}: set {API_KEY_VARIABLE} to a key of the service",)
    return error


def unreachable(error: httpx.RequestError) -> ServiceUnreachableError:
    """Return the error for an attempt without an answer."""
    reason = str(error) or type(error).__name__
    try:
        where = str(error.request.url)
    except RuntimeError:  # it never got as far as a request
        where = "the service"
    return ServiceUnreachableError(f"no response from {where}: {reason}")
