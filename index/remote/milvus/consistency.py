"""How new the items that a search finds have to be.

session     what this process wrote is found at once, what others wrote within the time that the
            server allows itself (`common.gracefulTime`, 5 seconds; 0.2 seconds as a rule)
strong      what anybody wrote is found at once; a search waits for the server's next tick
bounded     what anybody wrote is found within that time
eventually  what is there

Strong reads take 200 ms on a server as it comes, the others 1 to 2 ms; the first read after a write
of the same process takes 200 ms under "session", too.
"""

from __future__ import annotations

import threading
import time
from typing import Any

from aladin.errors import ConfigError

LEVELS = ("session", "strong", "bounded", "eventually")
DEFAULT_LEVEL = "session"
# Twice the server's own bound: older writes of this process are found without asking for them.
_OWN_WRITE_S = 10.0


class _Writes:
    """When this process last wrote to each collection, with whichever client."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        # The server's timestamp, and when it was noted.
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


# One for all clients: what writes and what searches have one each.
_WRITES = _Writes()


class Consistency:
    """Chooses what a read waits for."""

    def __init__(self, url: str, level: str | None) -> None:
        """Choose by one of the levels of this file.

        Args:
            url: of the server.
            level: None: the default.

        Raises:
            ConfigError: there is no such level.
        """
        level = level or DEFAULT_LEVEL
        if level not in LEVELS:
            raise ConfigError(f"consistency: expected one of {', '.join(LEVELS)}, got {level!r}")
        self._url = url
        self._level = level

    def note_write(self, collection: str, timestamp: int) -> None:
        """Say that a collection has just been written to.

        Args:
            collection: its name.
            timestamp: of the server, not before the write.
        """
        _WRITES.note(self._url, collection, timestamp)

    def of_read(self, collection: str) -> dict[str, Any]:
        """Return what a read has to ask for, in Milvus's words.

        Its own "Session" neither bounds how late the writes of others are found, nor waits for
        deletions, whose answers have no timestamp: here a read waits for the last write of this
        process, if it is recent, and is bounded where there is none.
        """
        if self._level != "session":
            return {"consistency_level": self._level.capitalize()}
        timestamp = _WRITES.recent(self._url, collection)
        if timestamp is None:
            return {"consistency_level": "Bounded"}
        return {"consistency_level": "Customized", "guarantee_timestamp": timestamp}
