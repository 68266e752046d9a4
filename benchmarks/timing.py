"""Times several things in turn, so that a busy machine slows all of them alike."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping

import numpy as np
from numpy.typing import NDArray


def time_in_turn(
    runs: Mapping[str, Callable[[int], object]], repetitions: int, warm_up: int = 3
) -> dict[str, NDArray[np.float64]]:
    """Time each of some functions once a repetition, one after the other.

    Ratios of medians hold even where the milliseconds do not.

    Args:
        runs: functions of the number of the repetition.
        repetitions: times that each is timed.
        warm_up: repetitions before those, which are not.

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
    """Return how many times as long the median of one takes as that of another."""
    return float(np.median(times[name]) / np.median(times[base]))
