"""Common parts of the benchmarks: command lines, output, and timing.

Alternatives are timed in turn, so that other load on the machine slows all of them alike. A time is
the smaller of wall-clock time and the process's own processor time: other processes inflate only
the former, several threads only the latter. It is exact for a single thread, and the wall-clock
time for several threads on an idle machine. Searches are measured on one thread.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Callable, Generator, Mapping
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from aladin_index.ann import faiss


def figures_parser(doc: str | None, quick: str) -> argparse.ArgumentParser:
    """Make a parser of the options that all benchmarks have.

    Args:
        doc: Docstring of the module.
        quick: Description of the quick form.
    """
    parser = argparse.ArgumentParser(
        description=doc, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--json", action="store_true", help="print JSON")
    parser.add_argument("--quick", action="store_true", help=quick)
    return parser


def print_figures(figures: Mapping[str, Any], *, as_json: bool) -> None:
    """Print all figures as JSON, or one line for each that is a single value."""
    if as_json:
        print(json.dumps(figures, indent=2))
        return
    single = {name: value for name, value in figures.items() if not isinstance(value, list | dict)}
    width = max(map(len, single), default=0)
    for name, value in single.items():
        shown = f"{value:.3f}" if isinstance(value, float) else value
        print(f"{name:<{width}}  {shown}")


def time_in_turn(
    runs: Mapping[str, Callable[[int], object]], repetitions: int, warm_up: int = 3
) -> dict[str, NDArray[np.float64]]:
    """Time each function once per repetition, one after the other.

    Ratios of medians hold even where the milliseconds do not.

    Args:
        runs: Functions to time, called with the number of the repetition.
        repetitions: Number of timed repetitions of each function.
        warm_up: Number of untimed repetitions before the timed ones.

    Returns:
        Milliseconds, (repetitions,) for each name.
    """
    times = {name: np.empty(repetitions) for name in runs}
    for turn in range(-warm_up, repetitions):
        for name, run in runs.items():
            started = time.perf_counter()
            run(turn)
            if turn >= 0:
                times[name][turn] = 1000 * (time.perf_counter() - started)
    return times


def ratio(times: Mapping[str, NDArray[np.float64]], name: str, base: str) -> float:
    """Return the ratio of the median times of two functions."""
    return float(np.median(times[name]) / np.median(times[base]))


_WARM_UP, _ROUNDS = 3, 5


class QuietTime:
    """Measured time of a block.

    Attributes:
        seconds: Wall-clock seconds or seconds of this process's threads, whichever are fewer.
    """

    def __init__(self) -> None:
        """Start at zero."""
        self.seconds = 0.0


@contextmanager
def quiet_time() -> Generator[QuietTime]:
    """Measure a block that computes; waiting for a disk or a server is not counted."""
    taken = QuietTime()
    clock, processor = time.perf_counter(), time.process_time()
    yield taken
    taken.seconds = min(time.perf_counter() - clock, time.process_time() - processor)


def quiet_times_s(run: Callable[[int], object], repetitions: int) -> NDArray[np.float64]:
    """Return the seconds that a function takes to compute on this thread.

    A neighbour also empties the caches, which no clock leaves out. It comes and goes: of several
    rounds the one with the least median is taken.

    Args:
        run: Function to time, called with the number of the repetition.
        repetitions: Number of repetitions in a round.

    Returns:
        (repetitions,) float64.
    """
    for turn in range(-_WARM_UP, 0):
        run(turn)
    rounds = [_round_s(run, repetitions) for _ in range(_ROUNDS)]
    return min(rounds, key=np.median)


def _round_s(run: Callable[[int], object], repetitions: int) -> NDArray[np.float64]:
    times = np.empty(repetitions)
    for turn in range(repetitions):
        started = time.thread_time()
        run(turn)
        times[turn] = time.thread_time() - started
    return times


def quiet_median_s(run: Callable[[int], object], repetitions: int) -> float:
    """Return the median of `quiet_times_s`."""
    return float(np.median(quiet_times_s(run, repetitions)))


@contextmanager
def one_thread() -> Generator[None]:
    """Limit torch and FAISS to one thread inside the block."""
    before = torch.get_num_threads(), faiss.omp_get_max_threads()
    torch.set_num_threads(1)
    faiss.omp_set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before[0])
        faiss.omp_set_num_threads(before[1])
