"""Connection to Milvus: time limits, retries, errors, and the consistency of reads.

`pymilvus` would retry a failing call until its time limit, which blocks a thread for as long as
the server is down. Here an unreachable server is reported at once; this module decides what is
retried, and when to give up.

Consistency levels determine how recent the items are that a search finds:

session     Writes of this process are found at once, those of other processes within the delay
            that the server permits (`common.gracefulTime`, 5 seconds; typically 0.2 seconds).
strong      All writes are found at once; a search waits for the server's next tick.
bounded     All writes are found within that delay.
eventually  No guarantee.

Strong reads take 200 ms with the server's defaults, the others 1 to 2 ms; with "session", the
first read after a write of the same process takes 200 ms too.
"""

from __future__ import annotations

import importlib
import json
import logging
import re
import threading
import time
from collections.abc import Callable
from typing import Any, TypeVar

from aladin_network.errors import ConfigError, EngineError, EngineUnavailableError, missing_package

ENGINE = "milvus"

Answer = TypeVar("Answer")

# Prefix that `pymilvus` adds about its own retries, which are disabled.
_TRIES = re.compile(r"^\[\w+\] Retry run out of 0 retry times, (message=)?")

# Codes of transient errors: the server is starting, a node of the cluster was lost, a collection is
# being loaded, there is too much to do. They are listed in Milvus's pkg/util/merr.
_PASSING = frozenset(
    (
        *(1, 2, 3, 4, 5, 8, 9),  # the service
        *(101, 103, 400, 401, 500, 501, 502, 503, 600, 601, 602),  # what is being loaded
        *(900, 901, 902, 903, 904, 1000, 1001, 1002),  # nodes and their files
    )
)
# Transient errors of gRPC, by name.
_PASSING_CALLS = {"UNAVAILABLE", "DEADLINE_EXCEEDED", "CANCELLED", "ABORTED", "UNKNOWN", "INTERNAL"}
# A server that is starting listens before it has registered what it serves.
_NOT_REGISTERED = ("UNIMPLEMENTED", "unknown service")
_FIRST_WAIT_S, _LONGEST_WAIT_S = 0.05, 1.0
# Interval of attempts to reconnect; by default gRPC waits up to minutes.
_FIRST_RECONNECT_MS, _RECONNECT_MS = 100, 500
# gRPC counts the time limit of a channel from a moment before the call: 1.3 to 2 s before it on the
# machines where this was measured. A limit per call is exact, but makes `pymilvus` retry for all of
# that time.
_LIMIT_IS_EARLY_S = 2.0

# Options of every call of `pymilvus`: retries are left to `Connection`.
ONCE: dict[str, Any] = {"retry_times": 0}

LEVELS = ("session", "strong", "bounded", "eventually")
DEFAULT_LEVEL = "session"
# Twice the bound of the server: older writes of this process are visible without requesting them.
_OWN_WRITE_S = 10.0


class Connection:
    """Calls of `pymilvus.MilvusClient`; connects at the first call."""

    def __init__(self, url: str, token: str | None, timeout_s: float, retries: int) -> None:
        try:
            self._pymilvus: Any = importlib.import_module("pymilvus")
            self._grpc_error: Any = importlib.import_module("grpc").RpcError
        except ImportError as error:
            raise ConfigError(missing_package("Milvus", "pymilvus")) from error
        # It logs each error before raising it; we log errors where they are handled.
        logging.getLogger("pymilvus").setLevel(logging.CRITICAL)
        self._url, self._token = url, token
        self._timeout_s, self._retries = timeout_s, retries
        self._lock = threading.Lock()
        self._client: Any = None

    @property
    def pymilvus(self) -> Any:
        return self._pymilvus

    def call(self, ask: Callable[[Any], Answer]) -> Answer:
        """Make a call, and retry it after a transient failure.

        An attempt may take half of the time limit, and none starts in the second half. If the
        server hangs, the last attempt may end up to 2 s late.
        """
        half_s = time.monotonic() + self._timeout_s / 2
        wait_s = _FIRST_WAIT_S
        for left in range(self._retries, -1, -1):
            try:
                return self._once(ask)
            except EngineUnavailableError:
                if left == 0 or time.monotonic() + wait_s > half_s:
                    raise
            time.sleep(wait_s)
            wait_s = min(2 * wait_s, _LONGEST_WAIT_S)
        raise AssertionError("the last try returns or raises")

    def wait_until(self, is_done: Callable[[Any], bool], what: str, timeout_s: float) -> None:
        """Poll until a job is done."""
        deadline_s, wait_s = time.monotonic() + timeout_s, _FIRST_WAIT_S
        while not self.call(is_done):
            if time.monotonic() > deadline_s:
                raise EngineUnavailableError(ENGINE, f"{what} took more than {timeout_s:g} s")
            time.sleep(wait_s)
            wait_s = min(2 * wait_s, _LONGEST_WAIT_S)

    def close(self) -> None:
        with self._lock:
            if self._client is not None:
                self._client.close()
                self._client = None

    def _once(self, ask: Callable[[Any], Answer]) -> Answer:
        try:
            return ask(self._connected())
        except self._pymilvus.MilvusException as error:
            cause = error.__cause__
            if isinstance(cause, self._grpc_error):
                # Its message contains all that gRPC reports about the call, line by line.
                raise _engine_error(cause.code(), cause.details()) from error
            raise _engine_error(error.code, error.message) from error
        except self._grpc_error as error:
            raise _engine_error(error.code(), error.details()) from error

    def _connected(self) -> Any:
        """Return the client; the first caller connects, others wait up to half the time limit."""
        half_s = self._timeout_s / 2
        if not self._lock.acquire(timeout=half_s):
            raise EngineUnavailableError(ENGINE, f"no connection to {self._url} in {half_s:g} s")
        try:
            if self._client is None:
                limits = {"name": [{}], "timeout": f"{half_s + _LIMIT_IS_EARLY_S:.3f}s"}
                self._client = self._pymilvus.MilvusClient(
                    uri=self._url,
                    token=self._token or "",
                    timeout=half_s,
                    # Not shared with other clients of this process, which may have other limits.
                    dedicated=True,
                    grpc_options={
                        "grpc.service_config": json.dumps({"methodConfig": [limits]}),
                        "grpc.initial_reconnect_backoff_ms": _FIRST_RECONNECT_MS,
                        "grpc.max_reconnect_backoff_ms": _RECONNECT_MS,
                    },
                )
            return self._client
        finally:
            self._lock.release()


def _engine_error(code: object, message: str) -> EngineError:
    name = getattr(code, "name", None)
    message = " ".join(_TRIES.sub("", message or "no reason was given").split())
    is_starting = name == _NOT_REGISTERED[0] and message.startswith(_NOT_REGISTERED[1])
    passing = name in _PASSING_CALLS or code in _PASSING or is_starting
    kind = EngineUnavailableError if passing else EngineError
    return kind(ENGINE, message if name is None else f"{name}: {message}")


class _Writes:
    """When this process last wrote to each collection, with any client."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        # The server's timestamp, and the local time when it was recorded.
        self._last: dict[tuple[str, str], tuple[int, float]] = {}

    def note(self, url: str, collection: str, timestamp: int) -> None:
        with self._lock:
            before, _ = self._last.get((url, collection), (0, 0.0))
            self._last[url, collection] = max(before, timestamp), time.monotonic()

    def recent(self, url: str, collection: str) -> int | None:
        with self._lock:
            timestamp, noted_s = self._last.get((url, collection), (0, 0.0))
        is_recent = timestamp > 0 and time.monotonic() - noted_s < _OWN_WRITE_S
        return timestamp if is_recent else None


# Shared by all clients: writers and searchers have one each.
_WRITES = _Writes()


class Consistency:
    """Chooses which writes a read waits for."""

    def __init__(self, url: str, level: str | None) -> None:
        level = level or DEFAULT_LEVEL
        if level not in LEVELS:
            raise ConfigError(f"consistency: expected one of {', '.join(LEVELS)}, got {level!r}")
        self._url = url
        self._level = level

    def note_write(self, collection: str, timestamp: int) -> None:
        """Record that a collection has just been written to."""
        _WRITES.note(self._url, collection, timestamp)

    def of_read(self, collection: str) -> dict[str, Any]:
        """Return the consistency parameters of a read for Milvus.

        Milvus's own "Session" neither limits the delay of other processes' writes nor waits for
        deletions, whose responses have no timestamp: here a read waits for the last write of this
        process if it is recent, and is bounded otherwise.
        """
        if self._level != "session":
            return {"consistency_level": self._level.capitalize()}
        timestamp = _WRITES.recent(self._url, collection)
        if timestamp is None:
            return {"consistency_level": "Bounded"}
        return {"consistency_level": "Customized", "guarantee_timestamp": timestamp}
