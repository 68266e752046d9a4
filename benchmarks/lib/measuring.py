"""Timing that holds on a machine with other load.

Alternatives are timed in turn, so that other load on the machine slows all of them alike. A time is
the smaller of wall-clock time and the process's own processor time: other processes inflate only
the former, several threads only the latter. It is exact for a single thread, and the wall-clock
time for several threads on an idle machine. Searches are measured on one thread.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Generator, Mapping
from contextlib import contextmanager

import numpy as np
from numpy.typing import NDArray

from aladin_index.ann import faiss
from aladin_network.graphs.threads import compute_threads, set_compute_threads

_WARM_UP, _ROUNDS = 3, 5


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

    Other processes also evict this one's data from the caches, which no clock subtracts. Their load
    varies, so the round with the smallest median is taken.

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


def use_one_thread() -> None:
    """Limit this process to one thread a computation, as the service does for a query."""
    set_compute_threads(1)
    faiss.omp_set_num_threads(1)


@contextmanager
def one_thread() -> Generator[None]:
    """Limit this process to one thread a computation inside the block."""
    before = compute_threads(), faiss.omp_get_max_threads()
    use_one_thread()
    try:
        yield
    finally:
        set_compute_threads(before[0])
        faiss.omp_set_num_threads(before[1])
