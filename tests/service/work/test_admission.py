"""Saturation and overload in simulated time."""

from __future__ import annotations

import pytest

from tests.service.work.simulated_service import Load, Machine, SimulatedService

ALONE, WARM_UP = Load(seconds=1, clients=1), Load(seconds=1, clients=8)

# A batch costs little more than its queries, or as much as one of them.
NETWORKS = [Machine(batch_s=0.005, query_s=0.019), Machine(batch_s=0.0125, query_s=0.011)]


@pytest.mark.parametrize("machine", NETWORKS)
def test_a_saturated_service_is_nearly_as_fast_as_its_answers_times_allow(machine: Machine) -> None:
    outcome = SimulatedService(machine, max_batch=16).run(
        ALONE, WARM_UP, Load(seconds=5, clients=32)
    )[-1]
    assert outcome.per_s > 0.9 * machine.possible_per_s()


@pytest.mark.parametrize("machine", NETWORKS)
def test_twice_the_load_is_answered_within_eight_times_a_lone_query_s_time(
    machine: Machine,
) -> None:
    rate_per_s = 2 * machine.possible_per_s()
    service = SimulatedService(machine, max_batch=16)
    lone, _, over = service.run(ALONE, WARM_UP, Load(seconds=8, rate_per_s=rate_per_s))
    assert over.percentile_s(99) < 8 * lone.percentile_s(50)
    assert over.per_s > 0.85 * machine.possible_per_s()
    assert 0.4 < over.accepted.mean() < 0.6


def test_a_machine_that_slows_down_answers_fewer_as_soon() -> None:
    machine = NETWORKS[0]
    service = SimulatedService(machine, lambda now_s: 2.0 if 5 < now_s < 10 else 1.0, max_batch=16)
    load = Load(seconds=13, rate_per_s=2 * machine.possible_per_s())
    lone, _, over = service.run(ALONE, WARM_UP, load)

    def between(start_s: float, end_s: float) -> tuple[float, float]:
        chosen = over.accepted & (over.started_s >= start_s) & (over.started_s < end_s)
        took_s = sorted(over.took_s[chosen])
        return len(took_s) / (end_s - start_s), took_s[int(0.95 * len(took_s))]

    bound_s = 8 * lone.percentile_s(50)
    before, slow, after = between(3, 5), between(6, 10), between(11, 15)
    assert max(before[1], slow[1], after[1]) < bound_s
    assert 0.35 < slow[0] / before[0] < 0.6
    assert after[0] > 0.9 * before[0]


def test_the_same_load_has_the_same_outcome() -> None:
    first, second = (
        SimulatedService(NETWORKS[0]).run(Load(seconds=1, clients=20))[0] for _ in range(2)
    )
    assert (first.took_s == second.took_s).all()
    assert first.accepted.sum() > 40
