"""Connections of `qdrant-client`: a server with time limits and retries, or a local folder.

All calls of Qdrant are safe to repeat: points are inserted and removed by their keys.
"""

from __future__ import annotations

import math
import random
import sqlite3
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import httpx
from qdrant_client import QdrantClient
from qdrant_client.common.client_exceptions import QdrantException, ResourceExhaustedResponse
from qdrant_client.http.exceptions import (
    ApiException,
    ResponseHandlingException,
    UnexpectedResponse,
)

from aladin_index.engines.client import EngineOptions
from aladin_index.engines.qdrant.client_store import ClientStore
from aladin_index.engines.qdrant.store import QdrantSettings
from aladin_network.errors import EngineError, EngineUnavailableError

# Doubled after each try and shortened randomly by up to half, so that replicas do not retry
# simultaneously.
_FIRST_PAUSE_S = 0.1
# Minimum time of a request, even if a pause has used up the limit.
_LEAST_TIME_S = 0.05
_PASSING = {408, 429, *range(500, 600)}

T = TypeVar("T")


class Retries:
    """Runs calls of `qdrant_client`; thread-safe."""

    def __init__(self, engine: str, timeout_s: float, retries: int) -> None:
        """Set the time limit and the number of retries.

        Args:
            engine: Name of the vector database in messages.
            timeout_s: Time limit of one call in seconds, retries and the pauses between them
                included.
            retries: Maximum number of retries after the first try.
        """
        self._engine = engine
        self._timeout_s = timeout_s
        self._retries = retries
        self._call = threading.local()

    def limit(self, request: httpx.Request) -> None:
        """Limit a request to the remaining time of its call; a hook of the HTTP client."""
        left_s = max(self._left_s(), _LEAST_TIME_S)
        request.extensions["timeout"] = httpx.Timeout(left_s).as_dict()

    def run(self, call: Callable[[], T]) -> T:
        """Make a call.

        Raises:
            EngineUnavailableError: If no response arrived in time, or the server is overloaded.
            EngineError: If the server rejects the call.
        """
        self._call.ends = time.monotonic() + self._timeout_s
        tries = 0
        while True:
            try:
                return call()
            except (ApiException, QdrantException, ValueError, RuntimeError) as error:
                wanted_s = _pause_s(error)
                if wanted_s is None:
                    raise EngineError(self._engine, _reason(error)) from error
                pause_s = max(wanted_s, _FIRST_PAUSE_S * 2**tries * random.uniform(0.5, 1))
                tries += 1
                if tries > self._retries or pause_s >= self._left_s():
                    reason = f"no answer after {tries} of {self._retries + 1} tries in at most "
                    reason += f"{self._timeout_s:g} s ({_reason(error)})"
                    raise EngineUnavailableError(self._engine, reason) from error
                time.sleep(pause_s)

    def _left_s(self) -> float:
        return self._call.ends - time.monotonic()


def _pause_s(error: Exception) -> float | None:
    """Return the seconds to wait before a retry, or None if a retry is of no use."""
    if isinstance(error, ResourceExhaustedResponse):
        return float(error.retry_after_s)
    if isinstance(error, UnexpectedResponse):
        return 0.0 if error.status_code in _PASSING else None
    if isinstance(error, ResponseHandlingException):
        return 0.0 if isinstance(error.source, httpx.TransportError) else None
    return None


def _reason(error: Exception) -> str:
    """Return the reason of an error in one line."""
    if isinstance(error, ResponseHandlingException):
        return f"{type(error.source).__name__}: {error.source}"
    if isinstance(error, UnexpectedResponse):
        return f"{error.status_code} {_said_by(error)}".rstrip()
    return str(error)


def _said_by(error: UnexpectedResponse) -> str:
    try:
        status: Any = error.structured()["status"]
        return str(status["error"])
    except (ValueError, TypeError, KeyError):
        return error.reason_phrase


def open_server_store(
    engine: str, url: str, options: EngineOptions, settings: QdrantSettings
) -> ClientStore:
    """Create a client of a server, which need not respond yet.

    Args:
        engine: Name of the vector database in messages.
        url: ``http://host:port`` or ``https://host:port``.
        options: Connection options.
        settings: Settings of collections.
    """
    tries = Retries(engine, options.timeout_s, options.retries)
    client = QdrantClient(
        url=url,
        api_key=options.token,
        # In whole seconds, for the server; `tries` limits how long a response is waited for.
        timeout=math.ceil(options.timeout_s),
        # The check would run in a thread of its own, and warn about the server's version.
        check_compatibility=False,
        event_hooks={"request": [tries.limit]},
    )
    return ClientStore(engine, client, tries, settings, local=False)


def open_local_store(engine: str, folder: Path, settings: QdrantSettings) -> ClientStore:
    """Open a folder in the client's local mode; it is created if it is missing.

    Args:
        engine: Name of the vector database in messages.
        folder: Folder that no other client has open.
        settings: Settings of collections.

    Raises:
        EngineUnavailableError: If another process has it open.
        EngineError: If the folder cannot be read.
    """
    try:
        client = QdrantClient(path=str(folder), force_disable_check_same_thread=True)
    except RuntimeError as error:
        reason = f"{folder}: is open in another process; a server takes more than one"
        raise EngineUnavailableError(engine, reason) from error
    except (ValueError, KeyError, OSError, sqlite3.Error) as error:
        raise EngineError(engine, f"{folder}: {error}") from error
    return ClientStore(engine, client, InTurn(engine), settings, local=True)


class InTurn:
    """Makes calls one at a time, because the local mode has no locks."""

    def __init__(self, engine: str) -> None:
        """Create the lock.

        Args:
            engine: Name of the vector database in messages.
        """
        self._engine = engine
        self._lock = threading.Lock()

    def run(self, call: Callable[[], T]) -> T:
        """Make a call.

        Raises:
            EngineError: If the requested object is missing or cannot be written.
        """
        with self._lock:
            try:
                return call()
            except (ValueError, RuntimeError, OSError, sqlite3.Error) as error:
                raise EngineError(self._engine, str(error)) from error
