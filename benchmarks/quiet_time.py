"""Seconds as a quiet machine would take them, measured on one that may not be quiet.

A neighbour takes the processor away, which the clock counts and the processor's own time does
not. Several threads use more of the processor's time than the clock's. So it is the less of the
two: exact where one thread computes, and the clock's where several do and nobody else is there.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Generator
from contextlib import contextmanager

import numpy as np
from numpy.typing import NDArray

_WARM_UP, _ROUNDS = 3, 5


class QuietTime:
    """What a block took.

    Attributes:
        seconds: of the clock or of this process's threads, whichever are fewer.
    """

    def __init__(self) -> None:
        """Begin at nothing."""
        self.seconds = 0.0


@contextmanager
def quiet_time() -> Generator[QuietTime]:
    """Measure a block that computes; what waits for a disk or for a server is not counted."""
    taken = QuietTime()
    clock, processor = time.perf_counter(), time.process_time()
    yield taken
    taken.seconds = min(time.perf_counter() - clock, time.process_time() - processor)


def quiet_times_s(run: Callable[[int], object], repetitions: int) -> NDArray[np.float64]:
    """Return the seconds of a function that computes on this thread.

    A neighbour also empties the caches, which no clock leaves out. It comes and goes: of several
    rounds the one with the least median is taken.

    Args:
        run: function of the number of the repetition.
        repetitions: of a round.

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
