"""Jobs in processes of their own: all are done, and what goes wrong stays with its job."""

from __future__ import annotations

import multiprocessing
import os
import time

import pytest

from aladin_network.errors import ConfigError
from aladin_network.types import Progress
from aladin_training.comparison.processes import RunState, describe_error, run_in_processes


class InOrder:
    """Hands jobs out in order."""

    def __init__(self, *jobs: str) -> None:
        self.waiting = list(jobs)
        self.ended: list[str] = []

    def take(self) -> str | None:
        """Return the next job."""
        return self.waiting.pop(0) if self.waiting else None

    def end(self, job: str) -> None:
        """Keep what has ended."""
        self.ended.append(job)


def perform(job: str, progress: Progress) -> None:
    """Do what the job's name says."""
    progress.start(10, "steps")
    progress.advance(3)
    if job == "mistaken":
        raise ConfigError("no such\nthing")
    if job == "killed":
        os.kill(os.getpid(), 9)
    if job == "endless":
        time.sleep(600)


def test_a_job_that_fails_or_is_killed_does_not_end_the_others() -> None:
    told: list[tuple[str, RunState]] = []
    ended: dict[str, str | None] = {}
    jobs = InOrder("fine", "mistaken", "killed")
    run_in_processes(
        perform, jobs, 2, lambda *state: told.append(state), lambda *end: ended.update([end])
    )
    assert ended == {
        "fine": None,
        "mistaken": "no such thing",
        "killed": "its process ended with exit code -9",
    }
    assert sorted(jobs.ended) == ["fine", "killed", "mistaken"]
    assert ("fine", RunState("3/10 steps", 3)) in told


def test_an_interruption_ends_the_processes() -> None:
    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run_in_processes(perform, InOrder("endless"), 1, interrupt, interrupt)
    assert multiprocessing.active_children() == []


def test_an_unforeseen_error_is_named() -> None:
    assert describe_error(ValueError("odd")) == "ValueError: odd"
