"""Jobs in processes of their own: all are done, and what goes wrong stays with its job."""

from __future__ import annotations

import multiprocessing
import os
import time
from pathlib import Path

import pytest

from aladin_network.errors import ConfigError
from aladin_network.types import Progress
from aladin_training.comparison.processes import (
    RunProgress,
    RunState,
    run_in_processes,
)


class Jobs:
    """Hands jobs out in order, the last two once two have ended; keeps how each of them ended."""

    def __init__(self, *jobs: str) -> None:
        self.waiting = list(jobs)
        self.ended: list[str] = []
        self.results: dict[str, str | None] = {}
        self.killed: list[int] = []

    def take(self) -> str | None:
        return self.waiting.pop(0) if self.waiting else None

    def end(self, job: str) -> None:
        self.ended.append(job)


class KillsIdleWorkers(Jobs):
    """Kills both workers once they have ended a job each, before it hands out the rest."""

    def take(self) -> str | None:
        if len(self.waiting) == 2 and not self.killed:
            if len(self.ended) < 2:
                return None
            for child in multiprocessing.active_children():
                self.killed.append(child.pid or 0)
                os.kill(self.killed[-1], 9)
                child.join()
        return super().take()


def perform(job: str, progress: Progress) -> None:
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
    jobs = Jobs("fine", "mistaken", "killed")
    ended = jobs.results.__setitem__
    run_in_processes(perform, jobs, 2, lambda *state: told.append(state), ended)
    assert jobs.results == {
        "fine": None,
        "mistaken": "no such thing",
        "killed": "its process ended with exit code -9",
    }
    assert sorted(jobs.ended) == ["fine", "killed", "mistaken"]
    assert ("fine", RunState("3/10 steps", 3)) in told


def test_a_worker_does_one_job_after_the_other_and_ends_with_a_failed_one(tmp_path: Path) -> None:
    jobs = Jobs(*(f"file {tmp_path / name}" for name in "ab"), "mistaken", f"file {tmp_path}/c")
    run_in_processes(perform, jobs, 1, lambda *_: None, jobs.results.__setitem__)
    first, second, third = ((tmp_path / name).read_text() for name in "abc")
    assert first == second
    assert third != first
    assert multiprocessing.active_children() == []


def test_a_worker_that_died_while_idle_is_replaced(tmp_path: Path) -> None:
    names = [f"file {tmp_path / name}" for name in "abcd"]
    jobs = KillsIdleWorkers(*names)
    run_in_processes(perform, jobs, 2, lambda *_: None, jobs.results.__setitem__)
    assert len(jobs.killed) == 2
    assert jobs.results == dict.fromkeys(names)
    assert int((tmp_path / "c").read_text()) not in jobs.killed


def test_an_interruption_ends_the_processes() -> None:
    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run_in_processes(perform, Jobs("endless"), 1, interrupt, interrupt)
    assert multiprocessing.active_children() == []


def test_states_are_sent_once_a_second_with_the_steps_since_the_last(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    now = 100.0
    monkeypatch.setattr("aladin_training.comparison.processes.time.monotonic", lambda: now)
    sent: list[RunState] = []
    progress = RunProgress(sent.append)
    progress.start(5000, "captions")
    progress.advance(5)
    progress.start(1200, "steps")
    progress.advance(3)
    now += 1
    progress.advance(2)
    assert sent == [RunState("5/5,000 captions", 0), RunState("5/1,200 steps", 5)]
