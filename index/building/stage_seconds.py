"""Where the time of a build goes."""

from __future__ import annotations

import threading
import time
from collections.abc import Generator
from contextlib import contextmanager


class StageSeconds:
    """Adds up the seconds spent in named stages; several threads may add at once."""

    def __init__(self) -> None:
        self.seconds: dict[str, float] = {}
        self._lock = threading.Lock()

    def add(self, stage: str, seconds: float) -> None:
        """Add to `stage`."""
        with self._lock:
            self.seconds[stage] = self.seconds.get(stage, 0.0) + seconds

    @contextmanager
    def measure(self, stage: str) -> Generator[None]:
        """Add the time inside the block to `stage`."""
        started = time.perf_counter()
        try:
            yield
        finally:
            self.add(stage, time.perf_counter() - started)

    @contextmanager
    def waiting_for(self, others: StageSeconds) -> Generator[None]:
        """Add the time inside the block, spent waiting for threads, to what they are doing.

        Stages that run beside each other cannot be added up. This way they can: each gets, of the
        time that was lost to the threads, the share that it has of their work. The stage with the
        most seconds is then the one to speed up, and all of them together are the elapsed time.

        Args:
            others: what the threads have measured so far.
        """
        started = time.perf_counter()
        try:
            yield
        finally:
            waited = time.perf_counter() - started
            with others._lock:
                theirs = dict(others.seconds)
            total = sum(theirs.values())
            for stage, seconds in theirs.items():
                self.add(stage, waited * seconds / total if total else 0.0)

    def notes(self) -> dict[str, float]:
        """Return the figures for `Progress.note`: ``read_s=1.2`` and so on."""
        with self._lock:
            return {f"{stage}_s": round(seconds, 1) for stage, seconds in self.seconds.items()}
