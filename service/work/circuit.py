"""Whether an engine is asked at all: a circuit breaker.

An engine that is away makes each call wait until its time is up. A handful of them would hold all
threads, and with them the requests that need no engine. So after some calls in a row that were not
answered nobody is let through any more, and all are refused at once. Who closes the circuit again
is not a request but the one that looks at the engine regularly, `service.work.engine_source`.

The pattern is that of M. Nygard, Release It! (2nd ed. 2018), ch. 5 "Circuit Breaker".
"""

from __future__ import annotations

import logging
import threading

from aladin.errors import EngineError, EngineUnavailableError

_LOG = logging.getLogger(__name__)

# One call that is not answered may be chance. Each has taken its time and all its tries, so to wait
# for a third would only hold one more thread.
_FAILURES = 2


class Circuit:
    """Counts calls that were not answered; safe to use from any number of threads."""

    def __init__(self) -> None:
        """Begin closed: calls are let through."""
        self._lock = threading.Lock()
        self._failures = 0
        self._open: EngineError | None = None

    @property
    def is_open(self) -> bool:
        """Whether calls are refused."""
        return self._open is not None

    def refusal(self) -> EngineUnavailableError | None:
        """Return what a call is refused with; None: it is let through."""
        why = self._open
        # A new one each time: an error that many threads raise would gather all their tracebacks.
        return None if why is None else EngineUnavailableError(why.engine, why.reason)

    def check(self) -> None:
        """Let a call through.

        Raises:
            EngineUnavailableError: the circuit is open.
        """
        refusal = self.refusal()
        if refusal is not None:
            raise refusal

    def failed(self, error: EngineError) -> None:
        """Note a call that was let through and not answered."""
        with self._lock:
            self._failures += 1
            if self._failures >= _FAILURES:
                self._break(error)

    def broken(self, error: EngineError) -> None:
        """Let no call through from now on, whatever was counted."""
        with self._lock:
            self._break(error)

    def answered(self) -> None:
        """Note a call that was answered while the circuit was closed."""
        if self._failures and self._open is None:  # the lock is for those few alone
            with self._lock:
                self._failures = 0

    def close(self) -> None:
        """Let calls through again."""
        with self._lock:
            if self._open is not None:
                _LOG.warning("the engine answers again")
            self._failures, self._open = 0, None

    def _break(self, error: EngineError) -> None:
        if self._open is None:
            _LOG.error("the engine is away, searches are refused till it answers: %s", error)
        self._open = error
