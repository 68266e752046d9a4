"""Where the time of a build goes."""

from __future__ import annotations

import time
from collections.abc import Generator
from contextlib import contextmanager


class StageSeconds:
    """Adds up the seconds spent in named stages."""

    def __init__(self) -> None:
        self.seconds: dict[str, float] = {}

    @contextmanager
    def measure(self, stage: str) -> Generator[None]:
        """Add the time inside the block to `stage`."""
        started = time.perf_counter()
        try:
            yield
        finally:
            spent = time.perf_counter() - started
            self.seconds[stage] = self.seconds.get(stage, 0.0) + spent

    def notes(self) -> dict[str, float]:
        """Return the figures for `Progress.note`: ``read_s=1.2`` and so on."""
        return {f"{stage}_s": round(seconds, 1) for stage, seconds in self.seconds.items()}
