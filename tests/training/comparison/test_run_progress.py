"""The progress of several runs, gathered into one."""

from __future__ import annotations

import pytest

from aladin_training.comparison.processes import ActiveRuns, RunProgress, RunState


class Recorder:
    """Keeps what it is told."""

    def __init__(self) -> None:
        self.started: list[tuple[int | None, str]] = []
        self.steps = 0
        self.running = ""

    def start(self, total: int | None, unit: str) -> None:
        """Keep the start."""
        self.started.append((total, unit))

    def advance(self, count: int = 1) -> None:
        """Add the units up."""
        self.steps += count

    def note(self, **numbers: float | str) -> None:
        """Keep the last words."""
        self.running = str(numbers["running"])


def test_states_are_told_with_the_steps_since_the_last(monkeypatch: pytest.MonkeyPatch) -> None:
    now = 100.0
    monkeypatch.setattr("aladin_training.comparison.processes.time.monotonic", lambda: now)
    told: list[RunState] = []
    progress = RunProgress(told.append)
    progress.start(5000, "captions")
    progress.advance(5)
    progress.start(1200, "steps")
    progress.advance(3)
    assert told == [RunState("5/5,000 captions", 0)]  # at most one a second
    now += 1
    progress.advance(2)
    assert told[1:] == [RunState("5/1,200 steps", 5)]


def test_all_runs_share_one_progress() -> None:
    recorder = Recorder()
    active = ActiveRuns(recorder)
    assert recorder.started == [(None, "steps")]
    active.update("a seed 0", RunState("3/9 steps", 3))
    active.update("b seed 0", RunState("1/9 steps", 1))
    assert recorder.running == "a seed 0: 3/9 steps, b seed 0: 1/9 steps"
    active.remove("a seed 0")
    assert recorder.running == "b seed 0: 1/9 steps"
    assert recorder.steps == 4
