"""How many machines are enough."""

from __future__ import annotations

import math
from collections.abc import Callable

from index.plan.latency import Latency
from index.plan.workload import Workload

# Busier machines answer late whenever a little more comes, or one of them is missing.
MOST_BUSY = 0.6
# More are no answer to give.
_MOST_MACHINES = 2**16


def machines_for_load(workload: Workload, core_s: float) -> int:
    """Return how many machines the queries keep busy for at most `MOST_BUSY` of the time.

    Args:
        workload: how many queries come, and the cores of a machine.
        core_s: of one core, that a query takes.
    """
    return math.ceil(workload.queries_per_s * core_s / (workload.machine_cores * MOST_BUSY))


def fewest_machines(start: int, latency: Callable[[int], Latency], p95_s: float) -> int | None:
    """Return the fewest machines that answer in time.

    Args:
        start: the fewest that are allowed.
        latency: of a query on some machines; more are never slower.
        p95_s: that is allowed.

    Returns:
        None where no number of them does.
    """
    enough = start
    while latency(enough).p95_s > p95_s:
        if enough > _MOST_MACHINES:
            return None
        enough *= 2
    low, high = max(start, enough // 2), enough
    while low < high:
        middle = (low + high) // 2
        if latency(middle).p95_s <= p95_s:
            high = middle
        else:
            low = middle + 1
    return high
