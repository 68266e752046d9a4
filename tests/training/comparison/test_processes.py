"""Jobs in processes of their own: all are done, and what goes wrong stays with its job."""

from __future__ import annotations

import multiprocessing
import os
import time
from pathlib import Path

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
    if job.startswith("file "):
        with Path(job.removeprefix("file ")).open("a") as file:
            file.write(f"{os.getpid()}\n")


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


def test_a_worker_does_one_job_after_the_other_and_ends_with_a_failed_one(tmp_path: Path) -> None:
    jobs = InOrder(*(f"file {tmp_path / name}" for name in "ab"), "mistaken", f"file {tmp_path}/c")
    run_in_processes(perform, jobs, 1, lambda *_: None, lambda *_: None)
    first, second, third = ((tmp_path / name).read_text() for name in "abc")
    assert first == second
    assert third != first
    assert multiprocessing.active_children() == []


def test_a_worker_that_died_while_idle_is_replaced(tmp_path: Path) -> None:
    """One of two workers is killed while it has no job; both later jobs are done all the same."""
    killed: list[int] = []
    ended: dict[str, str | None] = {}

    class Waiting(InOrder):
        """Hands out the rest once two jobs have ended, after killing their idle workers."""

        def take(self) -> str | None:
            if len(self.waiting) == 2 and not killed:
                if len(self.ended) < 2:
                    return None
                for child in multiprocessing.active_children():
                    killed.append(child.pid or 0)
                    os.kill(killed[-1], 9)
                    child.join()
            return super().take()

    names = [f"file {tmp_path / name}" for name in "abcd"]
    run_in_processes(perform, Waiting(*names), 2, lambda *_: None, lambda *end: ended.update([end]))
    assert len(killed) == 2
    assert ended == dict.fromkeys(names)
    assert int((tmp_path / "c").read_text()) not in killed


def test_an_interruption_ends_the_processes() -> None:
    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run_in_processes(perform, InOrder("endless"), 1, interrupt, interrupt)
    assert multiprocessing.active_children() == []


def test_an_unforeseen_error_is_named() -> None:
    assert describe_error(ValueError("odd")) == "ValueError: odd"
