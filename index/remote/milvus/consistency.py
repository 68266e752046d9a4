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

from aladin.errors import ConfigError

LEVELS = ("session", "strong", "bounded", "eventually")
DEFAULT_LEVEL = "session"
# Twice the server's own bound: older writes of this process are found without asking for them.
_OWN_WRITE_S = 10.0


class _Writes:
    """When this process last wrote to each collection, with whichever client."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._written_s: dict[tuple[str, str], float] = {}

    def note(self, url: str, collection: str) -> None:
        with self._lock:
            self._written_s[url, collection] = time.monotonic()

    def are_recent(self, url: str, collection: str) -> bool:
        with self._lock:
            written_s = self._written_s.get((url, collection))
        return written_s is not None and time.monotonic() - written_s < _OWN_WRITE_S


# One for all clients, as what writes and what searches have one each; `pymilvus` keeps the times
# of writes that "Session" asks for in the same way.
_WRITES = _Writes()


class Consistency:
    """Chooses the level of each read."""

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

    def note_write(self, collection: str) -> None:
        """Say that a collection has just been written to."""
        _WRITES.note(self._url, collection)

    def of_read(self, collection: str) -> str:
        """Return the level of a read, in Milvus's words.

        Milvus's "Session" does not bound how late the writes of others are found, its "Bounded"
        does not promise one's own: the first is asked for only as long as there are any.
        """
        if self._level != "session":
            return self._level.capitalize()
        return "Session" if _WRITES.are_recent(self._url, collection) else "Bounded"
