"""What a run says of itself while several run: some words now and then, and its steps."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import NamedTuple

from aladin.progress import Progress

_TELL_EVERY_S = 1.0


class RunState(NamedTuple):
    """How far a run is.

    Attributes:
        words: for people, e.g. ``joint 120/300 steps``.
        steps: optimizer steps done since the last time.
    """

    words: str
    steps: int


class RunProgress:
    """The progress of one run, told at most once a second; other processes can be listening."""

    def __init__(self, tell: Callable[[RunState], None]) -> None:
        """Tell states to `tell`."""
        self._tell = tell
        self._total: int | None = None
        self._unit = ""
        self._done = 0
        self._untold_steps = 0
        self._told_at = -_TELL_EVERY_S

    def start(self, total: int | None, unit: str) -> None:
        """Begin a piece of work."""
        self._total, self._unit, self._done = total, unit, 0

    def advance(self, count: int = 1) -> None:
        """Count; only optimizer steps add up over runs."""
        self._done += count
        if self._unit == "steps":
            self._untold_steps += count
        if time.monotonic() - self._told_at < _TELL_EVERY_S:
            return
        total = "" if self._total is None else f"/{self._total:,}"
        self._tell(RunState(f"{self._done:,}{total} {self._unit}", self._untold_steps))
        self._untold_steps = 0
        self._told_at = time.monotonic()

    def note(self, **numbers: float | str) -> None:
        """Ignore the figures: the run's own log has them."""


class ActiveRuns:
    """Shows the states of all runs under way through one progress."""

    def __init__(self, progress: Progress) -> None:
        """Show them through `progress`, which counts the steps of all runs."""
        self._progress = progress
        self._words: dict[str, str] = {}
        progress.start(None, "steps")

    def update(self, label: str, state: RunState) -> None:
        """Take a state in.

        Args:
            label: of the run.
            state: what it says.
        """
        self._words[label] = state.words
        self._show(state.steps)

    def remove(self, label: str) -> None:
        """Forget a run that has ended."""
        self._words.pop(label, None)
        self._show(0)

    def _show(self, steps: int) -> None:
        words = ", ".join(f"{label}: {each}" for label, each in self._words.items())
        self._progress.note(running=words)
        self._progress.advance(steps)
