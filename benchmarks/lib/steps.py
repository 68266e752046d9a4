"""Steps of a long measurement, each in a process of its own, with a file that a cut leaves whole.

A step reports figures as it gets them, and the file is written anew after each: whatever ends the
program, it holds all that was measured before. A step that fails, crashes or overruns its time is
recorded with the reason, and the next one runs.
"""

from __future__ import annotations

import importlib
import multiprocessing
import signal
import time
import traceback
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

from aladin_network.files import write_json

# Called with the name of a figure and its value.
Report = Callable[[str, Any], None]

_MOST_ERROR_CHARS = 4000


class SkippedError(Exception):
    """A step cannot run on this machine; the message is the reason."""


@dataclass(frozen=True)
class Setup:
    """What a step has to know.

    Attributes:
        folder: Folder for files that later steps read.
        seconds: Time that the step should take at most.
        is_quick: Whether to run the tiny form, which needs no card.
        items: Number of photos.
    """

    folder: Path
    seconds: float
    is_quick: bool
    items: int

    @property
    def measuring_s(self) -> float:
        """Time for repeating what is measured; the rest is for building and comparing."""
        return 0.1 if self.is_quick else 0.4 * self.seconds


@dataclass(frozen=True)
class Step:
    """A part of a measurement.

    Attributes:
        name: Name in the file.
        task: "module:function", imported in the step's process and called with a `Setup` and a
            `Report`: what cannot be imported fails this step alone.
        share: Its share of the time.
        items: Number of photos.
    """

    name: str
    task: str
    share: float
    items: int = 0


def run_steps(
    steps: Sequence[Step], out: Path, folder: Path, seconds: float, *, is_quick: bool
) -> dict[str, Any]:
    """Run steps one after the other, and write what they report.

    Args:
        steps: The steps. Time that one leaves is divided among the following ones.
        out: JSON file; replaced after every figure.
        folder: See `Setup`.
        seconds: Time for all steps. One that begins late is skipped, one that overruns is ended.
        is_quick: See `Setup`.

    Returns:
        Content of the file: by step its status ("done", "skipped", "failed" or "cut"), the reason
        of any but the first, seconds, and figures.
    """
    results: dict[str, dict[str, Any]] = {}
    content = {"seconds": seconds, "quick": is_quick, "steps": results}
    deadline = time.monotonic() + seconds
    for place, step in enumerate(steps):
        left = deadline - time.monotonic()
        mine = left * step.share / sum(each.share for each in steps[place:])
        result: dict[str, Any] = {"status": "running", "figures": {}}
        results[step.name] = result
        write_json(out, content)
        if left <= 0:
            result |= {"status": "skipped", "reason": "no time was left"}
        else:
            setup = Setup(folder, mine, is_quick, step.items)
            _run(step, setup, result, lambda: write_json(out, content))
        write_json(out, content)
        print(step.name, result["status"], *str(result.get("reason", "")).splitlines()[-1:])
    return content


def _run(step: Step, setup: Setup, result: dict[str, Any], keep: Callable[[], None]) -> None:
    # A server that has imported torch once, without touching a card, forks one process for each.
    server = multiprocessing.get_context("forkserver")
    server.set_forkserver_preload(["torch"])
    reading, writing = server.Pipe(duplex=False)
    process = server.Process(target=_work, args=(step.task, setup, writing))
    started = time.monotonic()
    process.start()
    writing.close()
    result |= {"status": "cut", "reason": f"ended after {setup.seconds:.0f} s"}
    try:
        while reading.poll(max(0.0, started + setup.seconds - time.monotonic())):
            name, value = reading.recv()
            if name is None:
                result |= value
            else:
                result["figures"][name] = value
                keep()
    except EOFError:
        process.join()
        if result["status"] == "cut":
            code = process.exitcode or 0
            how = signal.Signals(-code).name if code < 0 else f"exit status {code}"
            result |= {"status": "failed", "reason": f"its process ended: {how}"}
    process.kill()
    process.join()
    reading.close()
    if result["status"] == "done":
        del result["reason"]
    result["took_s"] = round(time.monotonic() - started, 2)


def _work(task: str, setup: Setup, writing: Connection) -> None:
    module, _, function = task.partition(":")

    def report(name: str, value: object) -> None:
        writing.send((name, value))

    try:
        getattr(importlib.import_module(module), function)(setup, report)
        end = {"status": "done"}
    except SkippedError as reason:
        end = {"status": "skipped", "reason": str(reason)}
    except Exception:
        end = {"status": "failed", "reason": traceback.format_exc()[-_MOST_ERROR_CHARS:].strip()}
    writing.send((None, end))
