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


class Consistency:
    """Chooses the level of each read."""

    def __init__(self, level: str | None) -> None:
        """Choose by one of the levels of this file.

        Args:
            level: None: the default.

        Raises:
            ConfigError: there is no such level.
        """
        level = level or DEFAULT_LEVEL
        if level not in LEVELS:
            raise ConfigError(f"consistency: expected one of {', '.join(LEVELS)}, got {level!r}")
        self._level = level
        self._lock = threading.Lock()
        self._written_s: dict[str, float] = {}

    def note_write(self, collection: str) -> None:
        """Say that this process has just written to a collection."""
        with self._lock:
            self._written_s[collection] = time.monotonic()

    def of_read(self, collection: str) -> str:
        """Return the level of a read, in Milvus's words.

        Milvus's "Session" does not bound how late the writes of others are found, its "Bounded"
        does not promise one's own: the first is asked for only as long as there are any.
        """
        if self._level != "session":
            return self._level.capitalize()
        with self._lock:
            written_s = self._written_s.get(collection)
        recently = written_s is not None and time.monotonic() - written_s < _OWN_WRITE_S
        return "Session" if recently else "Bounded"
