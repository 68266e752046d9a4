"""Points in a folder that `qdrant-client` reads in this process."""

from __future__ import annotations

import sqlite3
import threading
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

from qdrant_client import QdrantClient

from aladin.errors import EngineError, EngineUnavailableError
from index.remote.qdrant.client_store import ClientStore
from index.remote.qdrant.settings import QdrantSettings

T = TypeVar("T")


def open_local_store(engine: str, folder: Path, settings: QdrantSettings) -> ClientStore:
    """Open a folder in the client's local mode; it is made, if it is not there.

    Args:
        engine: what it is called in messages.
        folder: that no other client has open.
        settings: of collections.

    Raises:
        EngineUnavailableError: another process has it open.
        EngineError: it cannot be read.
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
    """Makes calls one at a time: the local mode has no locks."""

    def __init__(self, engine: str) -> None:
        """Make the lock that calls wait for.

        Args:
            engine: what it is called in messages.
        """
        self._engine = engine
        self._lock = threading.Lock()

    def run(self, call: Callable[[], T]) -> T:
        """Make a call.

        Raises:
            EngineError: what was asked for is not there, or cannot be written.
        """
        with self._lock:
            try:
                return call()
            except (ValueError, RuntimeError, OSError, sqlite3.Error) as error:
                raise EngineError(self._engine, str(error)) from error
