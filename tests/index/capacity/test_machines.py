import math

import pytest

from aladin_index.capacity.workload import Latency, Workload, fewest_machines, machines_for_load


@pytest.mark.parametrize("start", [1, 3, 7])
@pytest.mark.parametrize("wanted", [0.6, 0.11, 0.1001, 1.0])
def test_no_fewer_machines_are_enough(start: int, wanted: float) -> None:
    def latency(machines: int) -> Latency:
        return Latency(0.05, 0.1 + 1 / machines**2)

    slowly = start
    while latency(slowly).p95_s > wanted:
        slowly += 1
    assert fewest_machines(start, 1000, latency, wanted) == slowly


def test_what_no_number_of_machines_does_is_told() -> None:
    assert fewest_machines(1, 100, lambda machines: Latency(1, 2 + 1 / machines), 2.0) is None
    assert fewest_machines(1, 100, lambda _: Latency(math.inf, math.inf), 2.0) is None


def test_more_machines_may_be_slower_than_enough() -> None:
    def latency(machines: int) -> Latency:
        return Latency(0.05, 1.0 + abs(machines - 9) / 10)

    assert fewest_machines(4, 100, latency, 1.1) == 8
    assert fewest_machines(4, 7, latency, 1.1) is None
    assert fewest_machines(8, 3, latency, 1.1) == 8  # more than have something to do


def test_machines_are_busy_for_six_tenths_at_most() -> None:
    # 300 queries of 0.08 core seconds: 24 cores of work, 40 cores in all.
    workload = Workload(items=1, queries_per_s=300, machine_cores=8)
    assert machines_for_load(workload, 0.08) == 5
