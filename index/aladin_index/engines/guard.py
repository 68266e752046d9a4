"""Circuit breaker around a client: calls are timed, and rejected during an outage.

While Milvus is unavailable, each call waits until its time limit. A handful of such calls would
occupy all threads, and with them the requests that need no engine. After a few consecutive
failures the circuit therefore opens: calls are rejected at once. Requests never close it again;
the thread that polls Milvus does (`aladin_service.work.sources`), which is why no library's
breaker, which lets a request try again after a while, stands here.

The pattern is that of M. Nygard, Release It! (2nd ed. 2018), ch. 5 "Circuit Breaker".
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from functools import partial
from typing import Any, Literal, NamedTuple, cast

from aladin_index.engines.connection import ENGINE
from aladin_index.engines.milvus import EngineClient
from aladin_network.errors import EngineError, EngineUnavailableError

_LOG = logging.getLogger(__name__)

# A single failure may be accidental. Each failed call has used up its time limit and its retries,
# so waiting for a third would only occupy one more thread.
_FAILURES = 2

# Why a call failed: Milvus did not respond, or it rejected the call.
CallError = Literal["unavailable", "refused"]


class EngineCall(NamedTuple):
    """Outcome of one call of a method of `EngineClient`, with its duration, retries included."""

    operation: str
    seconds: float
    error: CallError | None


OnCall = Callable[[EngineCall], None]


def ignore_call(call: EngineCall) -> None:
    """Ignore a call: the default `OnCall`."""


class Circuit:
    """Counts consecutive failures; thread-safe."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._failures = 0
        self._open: EngineError | None = None

    @property
    def is_open(self) -> bool:
        """Whether calls are rejected."""
        return self._open is not None

    def refusal(self) -> EngineUnavailableError | None:
        """Return the error that rejects a call, or None if calls are permitted."""
        why = self._open
        # A new one each time: an error raised by many threads would collect all their tracebacks.
        return None if why is None else EngineUnavailableError(ENGINE, why.reason)

    def check(self) -> None:
        """Raise EngineUnavailableError if calls are rejected."""
        refusal = self.refusal()
        if refusal is not None:
            raise refusal

    def failed(self, error: EngineError) -> None:
        """Count a permitted call that was not answered."""
        with self._lock:
            self._failures += 1
            if self._failures >= _FAILURES:
                self._break(error)

    def broken(self, error: EngineError) -> None:
        """Open the circuit regardless of the count."""
        with self._lock:
            self._break(error)

    def answered(self) -> None:
        """Reset the count after a call that was answered while the circuit was closed."""
        if self._failures and self._open is None:  # only these few calls need the lock
            with self._lock:
                self._failures = 0

    def close(self) -> None:
        """Permit calls again."""
        with self._lock:
            if self._open is not None:
                _LOG.warning("vector database responds again")
            self._failures, self._open = 0, None

    def _break(self, error: EngineError) -> None:
        if self._open is None:
            _LOG.error(
                "vector database unreachable; rejecting searches until it responds: %s", error
            )
        self._open = error


def guarded(client: EngineClient, circuit: Circuit, on_call: OnCall) -> EngineClient:
    """Put a client behind a circuit breaker; `on_call` receives each outcome, on the call's thread.

    Generations come and go while the connection stays: closing the result leaves the client open.
    """
    return cast(EngineClient, _Guard(client, circuit, on_call))


class _Guard:
    """Passes attributes through unchanged, and routes method calls through the circuit."""

    def __init__(self, client: EngineClient, circuit: Circuit, on_call: OnCall) -> None:
        self._client = client
        self._circuit = circuit
        self._on_call = on_call

    def close(self) -> None:
        """Do nothing: the connection belongs to whoever opened it."""

    def __getattr__(self, name: str) -> Any:
        attribute = getattr(self._client, name)
        return partial(self._call, name, attribute) if callable(attribute) else attribute

    def _call(
        self, operation: str, method: Callable[..., Any], *arguments: Any, **options: Any
    ) -> Any:
        self._circuit.check()
        started_s = time.perf_counter()
        error: CallError | None = None
        try:
            answer = method(*arguments, **options)
        except EngineUnavailableError as raised:
            error = "unavailable"
            self._circuit.failed(raised)
            raise
        except EngineError:
            error = "refused"
            self._circuit.answered()
            raise
        else:
            self._circuit.answered()
            return answer
        finally:
            self._on_call(EngineCall(operation, time.perf_counter() - started_s, error))
