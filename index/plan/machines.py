"""How many machines are enough."""

from __future__ import annotations

import math
from collections.abc import Callable

from index.plan.latency import Latency
from index.plan.workload import Workload

# Busier machines answer late whenever a little more comes, or one of them is missing.
MOST_BUSY = 0.6
# More are no answer to give.
MOST_MACHINES = 2**14


def machines_for_load(workload: Workload, core_s: float) -> int:
    """Return how many machines the queries keep busy for at most `MOST_BUSY` of the time.

    Args:
        workload: how many queries come, and the cores of a machine.
        core_s: of one core, that a query takes.
    """
    return math.ceil(workload.queries_per_s * core_s / (workload.machine_cores * MOST_BUSY))


def fewest_machines(
    start: int, most: int, latency: Callable[[int], Latency], p95_s: float
) -> int | None:
    """Return the fewest machines that answer in time.

    One after the other is tried, for more are not always faster: of many that have to answer
    together the slowest is slower.

    Args:
        start: the fewest that are allowed; at least these are tried.
        most: that have something to do.
        latency: of a query on some machines.
        p95_s: that is allowed.

    Returns:
        None where no number of them does.
    """
    numbers = range(start, max(start, min(most, MOST_MACHINES)) + 1)
    return next((number for number in numbers if latency(number).p95_s <= p95_s), None)
