"""A progress that keeps what it is told."""

from __future__ import annotations

from aladin_network.types import NullProgress


class Recorder(NullProgress):
    """Counts the units of each piece of work."""

    def __init__(self) -> None:
        self.pieces: list[tuple[int | None, str]] = []
        self.done: dict[str, int] = {}

    def start(self, total: int | None, unit: str) -> None:
        """Record a new piece of work."""
        self.pieces.append((total, unit))

    def advance(self, count: int = 1) -> None:
        """Count units of the piece of work that was begun last."""
        unit = self.pieces[-1][1]
        self.done[unit] = self.done.get(unit, 0) + count
