"""What batches are expected to take, and what follows: saturation and overload, simulated."""

from __future__ import annotations

import pytest

from aladin_service.work.admission import BatchTimes
from tests.service.work.simulated_service import Load, Machine, SimulatedService

ALONE, WARM_UP = Load(seconds=1, clients=1), Load(seconds=1, clients=8)

# A batch costs little more than its queries, or as much as one of them.
NETWORKS = [Machine(batch_s=0.005, query_s=0.019), Machine(batch_s=0.0125, query_s=0.011)]


@pytest.mark.parametrize("machine", NETWORKS)
def test_a_saturated_service_is_nearly_as_fast_as_its_answers_times_allow(machine: Machine) -> None:
    service = SimulatedService(machine, max_batch=16)
    *_, outcome = service.run(ALONE, WARM_UP, Load(seconds=3, clients=32))
    assert outcome.per_s > 0.9 * machine.possible_per_s()


@pytest.mark.parametrize("machine", NETWORKS)
def test_twice_the_load_is_answered_within_eight_times_a_lone_query_s_time(
    machine: Machine,
) -> None:
    service = SimulatedService(machine, max_batch=16)
    load = Load(seconds=5, rate_per_s=2 * machine.possible_per_s())
    lone, _, over = service.run(ALONE, WARM_UP, load)
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

    before, slow, after = between(3, 5), between(6, 10), between(11, 15)
    assert max(before[1], slow[1], after[1]) < 8 * lone.percentile_s(50)
    assert 0.35 < slow[0] / before[0] < 0.6
    assert after[0] > 0.9 * before[0]


def observed(*batches: tuple[int, float], alone: bool = False) -> BatchTimes:
    times = BatchTimes()
    for size, seconds in batches:
        times.observe(size, seconds, alone=alone, cached=False)
    return times


LINE = [(size, 0.010 + 0.002 * size) for size in (1, 4, 16, 8)] * 30
KEPT = [(size, 0.030 + 0.002 * size) for size in (2, 16)] * 10 + [(8, 0.046)] * 5
SLOWER = [(size, each * size) for each in (0.010, 0.030) for size in (2, 8) * 10]


@pytest.mark.parametrize(
    ("batches", "expected", "rel"),
    [
        ([], {8: 0.0}, 0.0),
        (LINE, {size: 0.010 + 0.002 * size for size in (1, 2, 12, 32)}, 0.03),
        ([(8, 0.080)] * 30, {8: 0.080, 16: 0.160, 4: 0.040}, 1e-6),
        (KEPT, {16: 0.062}, 0.03),
        (SLOWER, {8: 0.240}, 0.05),
        ([(4, 0.050), (4, 0.150)] * 20, {4: 0.155}, 0.09),
    ],
    ids=[
        "nothing without batches",
        "a line",
        "one size in proportion",
        "a slope is kept",
        "a slower machine is believed after some batches",
        "times that vary count as longer than their average",
    ],
)
def test_expected_times_follow_the_latest_batches(
    batches: list[tuple[int, float]], expected: dict[int, float], rel: float
) -> None:
    times = observed(*batches)
    assert {size: times.expect(size) for size in expected} == pytest.approx(expected, rel=rel)


def test_the_largest_batch_in_time_is_limited_by_its_time_and_the_most() -> None:
    times = observed(*LINE)
    assert [times.largest(*limits) for limits in ((0.0305, 32), (0.0305, 8), (0.005, 32))] == (
        [10, 8, 1]
    )
    assert BatchTimes().largest(0.1, 16) == 16
    # A larger batch is never expected to take less time.
    times = observed((1, 0.050), (8, 0.010), (1, 0.060), (8, 0.010))
    assert times.expect(8) == times.expect(1)
    assert [times.largest(seconds, 16) for seconds in (1.0, 0.001)] == [16, 1]


def test_a_single_slow_batch_counts_as_one_of_four_times_the_expected_length() -> None:
    slow, four = (observed(*[(4, 0.100)] * 20, (4, seconds)) for seconds in (60.0, 0.400))
    assert slow.expect(4) == pytest.approx(four.expect(4))
    assert observed((1, 0.010), (1, 60.0), alone=True).lone_s == pytest.approx(0.016)


def test_only_a_query_by_itself_raises_the_time_of_a_lone_query() -> None:
    times = BatchTimes()
    seen = [times.lone_s]
    for size, seconds, alone in [
        (8, 0.080, False),  # the best that is known
        (1, 0.020, False),
        (1, 0.010, True),
        (1, 0.015, True),
        *[(1, 0.004, False), (8, 0.500, False)] * 20,  # chance, beside others
        (2, 0.008, False),  # more than a lone query takes
    ]:
        times.observe(size, seconds, alone=alone, cached=False)
        seen.append(times.lone_s)
    assert seen == pytest.approx([0.0, 0.080, 0.020, 0.010, *[0.011] * 41, 0.008])


def test_remembered_encodings_tell_nothing_of_a_lone_query() -> None:
    times = observed((1, 0.010), alone=True)
    for _ in range(60):
        times.observe(1, 0.001, alone=True, cached=True)
    assert times.lone_s == 0.010
    assert times.expect(1) == pytest.approx(0.001, rel=0.05)
    times.observe(8, 0.080, alone=False, cached=False)  # no faster than a lone query
    assert times.lone_s == 0.010
