"""What a service answered to what was meant to harm it, counted."""

from __future__ import annotations

import threading
from collections import Counter
from typing import NamedTuple

# An answer that takes longer is none.
PATIENCE_S = 30.0


class Fault(NamedTuple):
    """Something that must not happen.

    Attributes:
        kind: server_error, hang, undocumented or leak.
        asked: what led to it.
        told: what came back.
    """

    kind: str
    asked: str
    told: str


class Answers:
    """Counts answers and keeps the faults; safe to use from any number of threads."""

    def __init__(self) -> None:
        """Start at none."""
        self.statuses: dict[str, Counter[int]] = {}
        self.faults: list[Fault] = []
        self._lock = threading.Lock()

    def answered(self, group: str, status: int, asked: str, body: bytes) -> None:
        """Count an answer; any status of 500 and more is a fault, 503 too.

        Nothing here overloads the service or stops it, so there is no good reason for one.
        """
        with self._lock:
            self.statuses.setdefault(group, Counter())[status] += 1
        if status >= 500:
            self.fault("server_error", asked, f"{status} {body[:300]!r}")

    def fault(self, kind: str, asked: str, told: str) -> None:
        """Keep a fault."""
        with self._lock:
            self.faults.append(Fault(kind, asked, told))

    def count(self, kind: str) -> int:
        """Return the number of faults of a kind."""
        return sum(fault.kind == kind for fault in self.faults)
