"""What a run says of itself while several run: some words now and then, and its steps.

Jobs in processes of their own, several at a time.

A process a job, not a pool: one that the system kills for its memory takes no other with it.
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


J = TypeVar("J")


class _Ended(NamedTuple):
    """A job's last word."""

    failure: str | None


class JobQueue(Protocol[J]):
    """Decides what is next."""

    def take(self) -> J | None:
        """Return the next job; None: there is none left."""
        ...

    def end(self, job: J, /) -> None:
        """Learn that a job has ended."""
        ...


class _Running(NamedTuple, Generic[J]):
    job: J
    process: SpawnProcess


def run_in_processes(
    perform: Callable[[J, Progress], None],
    jobs: JobQueue[J],
    at_a_time: int,
    told: Callable[[J, RunState], None],
    ended: Callable[[J, str | None], None],
) -> None:
    """Perform jobs, some at a time, and end all of them if this process is interrupted.

    Args:
        perform: does one job; a function of a module, for another process has to find it.
        jobs: what to do; jobs can be pickled.
        at_a_time: number of processes.
        told: receives the state of a job now and then.
        ended: receives each job that is done, with the reason if it failed.
    """
    context = multiprocessing.get_context("spawn")
    running: dict[Connection, _Running[J]] = {}
    try:
        while True:
            while len(running) < at_a_time and (job := jobs.take()) is not None:
                ours, theirs = context.Pipe(duplex=False)
                process = context.Process(target=_child, args=(perform, job, theirs), daemon=True)
                process.start()
                theirs.close()  # so that the end of the process is the end of the pipe
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
                    told(job, message)
                    continue
                process.join()
                connection.close()
                del running[connection]
                jobs.end(job)
                ended(job, message.failure)
    finally:
        for each in running.values():
            each.process.terminate()
        for each in running.values():
            each.process.join()


def describe(error: Exception) -> str:
    """Describe an error in one line; one that nobody foresaw also by its class."""
    message = " ".join(str(error).split())
    if isinstance(error, AladinError) and message:
        return message
    return f"{type(error).__name__}: {message}"


def _child(perform: Callable[[J, Progress], None], job: J, connection: Connection) -> None:
    # The first process decides when to stop: an interruption at the keyboard reaches all of them.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        perform(job, RunProgress(connection.send))
    except Exception as error:
        connection.send(_Ended(describe(error)))
    else:
        connection.send(_Ended(None))
