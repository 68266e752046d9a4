"""Several jobs at a time, each in a process of its own that reports its progress.

There is one process for each job instead of a pool: if the operating system kills one for its
memory, the others go on.
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

_REPORT_EVERY_S = 1.0

J = TypeVar("J")


class RunState(NamedTuple):
    """State of a run.

    Attributes:
        text: Text to show, e.g. ``120/300 steps``.
        steps: Optimizer steps since the last report.
    """

    text: str
    steps: int


class RunProgress:
    """Progress of one run, reported at most once a second, perhaps to another process."""

    def __init__(self, report: Callable[[RunState], None]) -> None:
        """Pass states to `report`."""
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
        """Show states through `progress`, which counts the steps of all runs."""
        self._progress = progress
        self._texts: dict[str, str] = {}
        progress.start(None, "steps")

    def update(self, label: str, state: RunState) -> None:
        """Show a new state.

        Args:
            label: Label of the run.
            state: Its state.
        """
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


class _Running(NamedTuple, Generic[J]):
    job: J
    process: SpawnProcess


def run_in_processes(
    perform: Callable[[J, Progress], None],
    jobs: JobQueue[J],
    at_a_time: int,
    on_state: Callable[[J, RunState], None],
    on_end: Callable[[J, str | None], None],
) -> None:
    """Perform jobs, several at a time; an interruption of this process ends all of them.

    Args:
        perform: Function of a module that performs one job, importable in another process.
        jobs: Queue of jobs that can be pickled.
        at_a_time: Number of processes.
        on_state: Receives the state of a running job about once a second.
        on_end: Receives each ended job, with the reason if it failed.
    """
    context = multiprocessing.get_context("spawn")
    running: dict[Connection, _Running[J]] = {}
    try:
        while True:
            while len(running) < at_a_time and (job := jobs.take()) is not None:
                ours, theirs = context.Pipe(duplex=False)
                process = context.Process(target=_child, args=(perform, job, theirs), daemon=True)
                process.start()
                theirs.close()  # so that the pipe ends with the child process
                running[ours] = _Running(job, process)
            if not running:
                return
            for ready in wait(list(running)):
                connection = cast(Connection, ready)
                job, process = running[connection]
                try:
                    message: RunState | _Ended = connection.recv()
                except EOFError:
                    process.join()
                    message = _Ended(f"its process ended with exit code {process.exitcode}")
                if isinstance(message, RunState):
                    on_state(job, message)
                    continue
                process.join()
                connection.close()
                del running[connection]
                jobs.end(job)
                on_end(job, message.failure)
    finally:
        for each in running.values():
            each.process.terminate()
        for each in running.values():
            each.process.join()


def describe_error(error: Exception) -> str:
    """Describe an error in one line, with its class unless it is an error of this project."""
    message = " ".join(str(error).split())
    if isinstance(error, AladinError) and message:
        return message
    return f"{type(error).__name__}: {message}"


def _child(perform: Callable[[J, Progress], None], job: J, connection: Connection) -> None:
    # Ctrl+C reaches every process; the parent alone decides when to stop.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        perform(job, RunProgress(connection.send))
    except Exception as error:
        connection.send(_Ended(describe_error(error)))
    else:
        connection.send(_Ended(None))
