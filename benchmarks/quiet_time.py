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

_WARM_UP = 3


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


def quiet_median_s(run: Callable[[int], object], repetitions: int) -> float:
    """Return the median seconds of a function that computes on this thread.

    Args:
        run: function of the number of the repetition.
        repetitions: that are measured.
    """
    times = np.empty(repetitions)
    for turn in range(-_WARM_UP, repetitions):
        started = time.thread_time()
        run(turn)
        if turn >= 0:
            times[turn] = time.thread_time() - started
    return float(np.median(times))
