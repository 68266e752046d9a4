"""A progress that remembers what it was given."""

from __future__ import annotations

from aladin_network.types import NullProgress


class CountedProgress(NullProgress):
    """Keeps the unit, the total and the count of each piece of work."""

    def __init__(self) -> None:
        self.pieces: list[tuple[str, int | None, int]] = []

    def start(self, total: int | None, unit: str) -> None:
        self.pieces.append((unit, total, 0))

    def advance(self, count: int = 1) -> None:
        unit, total, done = self.pieces[-1]
        self.pieces[-1] = unit, total, done + count
