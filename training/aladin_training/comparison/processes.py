"""Several jobs at a time, in worker processes that report their progress.

A worker does one job after the other, so that it imports and reads once what all of them need. A
failed job ends its worker, whose state may be corrupt. If the operating system kills
a worker for its memory, the others go on.
"""

from __future__ import annotations

import multiprocessing
import signal
import time
from collections.abc import Callable
from multiprocessing.connection import Connection, wait
from multiprocessing.context import SpawnProcess
from typing import Generic, NamedTuple, Protocol, TypeVar, cast

from aladin_network.errors import AladinError
from aladin_network.types import Progress
from aladin_training.parallel.parent import end_with_parent

_REPORT_EVERY_S = 1.0

J = TypeVar("J")


class RunState(NamedTuple):
    """State of a run."""

    text: str
    steps: int


class RunProgress:
    """Progress of one run, reported at most once a second, perhaps to another process."""

    def __init__(self, report: Callable[[RunState], None]) -> None:
        self._report = report
        self._total: int | None = None
        self._unit = ""
        self._done = 0
        self._unreported_steps = 0
        self._reported_at = -_REPORT_EVERY_S

    def start(self, total: int | None, unit: str) -> None:
        """Start a phase of the work."""
        self._total, self._unit, self._done = total, unit, 0

    def advance(self, count: int = 1) -> None:
        """Count units of work; only optimizer steps are added up over runs."""
        self._done += count
        if self._unit == "steps":
            self._unreported_steps += count
        if time.monotonic() - self._reported_at < _REPORT_EVERY_S:
            return
        total = "" if self._total is None else f"/{self._total:,}"
        self._report(RunState(f"{self._done:,}{total} {self._unit}", self._unreported_steps))
        self._unreported_steps = 0
        self._reported_at = time.monotonic()

    def note(self, **numbers: float | str) -> None:
        """Ignore figures: the run's own log holds them."""


class ActiveRuns:
    """Shows the states of all running runs through one progress."""

    def __init__(self, progress: Progress) -> None:
        self._progress = progress
        self._texts: dict[str, str] = {}
        progress.start(None, "steps")

    def update(self, label: str, state: RunState) -> None:
        """Show a new state."""
        self._texts[label] = state.text
        self._show(state.steps)

    def remove(self, label: str) -> None:
        """Remove a run that has ended."""
        self._texts.pop(label, None)
        self._show(0)

    def _show(self, steps: int) -> None:
        running = ", ".join(f"{label}: {each}" for label, each in self._texts.items())
        self._progress.note(running=running)
        self._progress.advance(steps)


class _Ended(NamedTuple):
    """The last message of a job, with the reason if it failed."""

    failure: str | None


class JobQueue(Protocol[J]):
    """Chooses the next job."""

    def take(self) -> J | None:
        """Return the next job, or None if there is none left."""
        ...

    def end(self, job: J, /) -> None:
        """Note that a job has ended."""
        ...


class _Worker(NamedTuple):
    process: SpawnProcess
    connection: Connection


class _Running(NamedTuple, Generic[J]):
    job: J
    worker: _Worker


def run_in_processes(
    perform: Callable[[J, Progress], None],
    jobs: JobQueue[J],
    at_a_time: int,
    on_state: Callable[[J, RunState], None],
    on_end: Callable[[J, str | None], None],
) -> None:
    """Perform jobs, several at a time; an interruption of this process ends all of them."""
    idle: list[_Worker] = []
    running: dict[Connection, _Running[J]] = {}
    try:
        while True:
            while len(running) < at_a_time and (job := jobs.take()) is not None:
                worker = _give(job, idle, perform)
                running[worker.connection] = _Running(job, worker)
            if not running:
                return
            for ready in wait(list(running)):
                job, worker = running[cast(Connection, ready)]
                message = _next_message(worker)
                if isinstance(message, RunState):
                    on_state(job, message)
                    continue
                del running[worker.connection]
                if message.failure is None:
                    idle.append(worker)
                else:
                    _end(worker)
                jobs.end(job)
                on_end(job, message.failure)
    finally:
        for worker in [*idle, *(each.worker for each in running.values())]:
            _end(worker)


def _give(job: J, idle: list[_Worker], perform: Callable[[J, Progress], None]) -> _Worker:
    """Give a job to an idle worker, or to a new one if there is none."""
    while idle:
        worker = idle.pop()
        try:
            worker.connection.send(job)
        except OSError:  # it was killed while it had nothing to do
            _end(worker)
        else:
            return worker
    context = multiprocessing.get_context("spawn")
    ours, theirs = context.Pipe()
    process = context.Process(target=_work, args=(perform, theirs), daemon=True)
    process.start()
    theirs.close()  # so that the pipe ends with the child process
    ours.send(job)
    return _Worker(process, ours)


def _next_message(worker: _Worker) -> RunState | _Ended:
    try:
        return worker.connection.recv()
    except (EOFError, ConnectionResetError):
        worker.process.join()
        return _Ended(f"its process ended with exit code {worker.process.exitcode}")


def _end(worker: _Worker) -> None:
    worker.process.terminate()
    worker.process.join()
    worker.connection.close()


def describe_error(error: Exception) -> str:
    """Describe an error in one line, with its class unless it is an error of this project."""
    message = " ".join(str(error).split())
    if isinstance(error, AladinError) and message:
        return message
    return f"{type(error).__name__}: {message}"


def _work(perform: Callable[[J, Progress], None], connection: Connection) -> None:
    end_with_parent()
    # Ctrl+C reaches every process; the parent alone decides when to stop.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    while True:
        try:
            job: J = connection.recv()
        except EOFError:  # the parent is gone
            return
        try:
            perform(job, RunProgress(connection.send))
        except Exception as error:
            connection.send(_Ended(describe_error(error)))
        else:
            connection.send(_Ended(None))
