"""Chooses an engine's search parameters, the same way for all engines."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from benchmarks.engine_task import RECALL_WANTED, Task, ann_recall
from benchmarks.timing import time_in_turn

Option = TypeVar("Option")


def fastest(
    task: Task,
    options: Sequence[Option],
    find: Callable[[Option, NDArray[np.float32]], Sequence[int] | NDArray[np.int64]],
) -> Option:
    """Return the option with the smallest median time of those that reach the recall wanted.

    Args:
        task: whose tuning queries are searched.
        options: one of them at least searches exactly.
        find: searches with an option; returns what it found.
    """
    good = [each for each in options if ann_recall(task, partial(find, each)) >= RECALL_WANTED]

    def run(option: Option, turn: int) -> None:
        find(option, task.queries.embeddings[turn % task.tuning])

    runs = {str(place): partial(run, option) for place, option in enumerate(good)}
    times = time_in_turn(runs, repetitions=task.tuning)
    medians = [float(np.median(each)) for each in times.values()]
    return good[int(np.argmin(medians))]
