"""The plan that is shipped is held against the indexes that were measured."""

import dataclasses

import pytest

from aladin_index.capacity.constants import (
    Constants,
    MeasuredRun,
    Measurements,
    read_constants,
    read_measurements,
)
from aladin_index.capacity.plan import compare, make_plan
from aladin_index.capacity.workload import Workload


def test_the_plan_is_within_a_quarter_of_what_was_measured() -> None:
    constants, measurements = read_constants(), read_measurements()
    assert measurements.machine == constants.machine
    assert {10_000, 100_000} <= {run.items for run in measurements.runs}
    compared = compare(constants, measurements)
    assert len(compared) == 6 * len(measurements.runs)
    off = [f"{each.items} {each.name}: {each.ratio:.2f}" for each in compared if not each.within]
    assert not off


@pytest.fixture
def measurements(constants: Constants) -> Measurements:
    """A thousand items; numbers near those that the constants give."""
    run = MeasuredRun(
        command="by hand",
        measured_on="2026-11-22",
        items=1000,
        token_dtype="int8",
        disk_bytes=1000 * (2 * 1024 + 49 * 132 + 8 + 250),
        serving_bytes=500_000_000,
        building_bytes=700_000_000,
        build_s=0.25 + 1000 * 49 * 128 * 1e-8 + 0.01 + 0.01,
        p50_s=4.5e-4,
        p95_s=5.3e-4,
    )
    return Measurements(machine=constants.machine, runs=[run])


def test_what_is_off_by_more_than_a_quarter_is_told(
    constants: Constants, measurements: Measurements
) -> None:
    by_name = {each.name: each for each in compare(constants, measurements)}
    assert by_name["disk_bytes"].ratio == 1
    assert all(each.within for each in by_name.values())
    slow = dataclasses.replace(measurements.runs[0], p50_s=9e-4, building_bytes=500_000_000)
    now = {
        each.name
        for each in compare(constants, dataclasses.replace(measurements, runs=[slow]))
        if not each.within
    }
    assert now == {"p50_s", "building_bytes"}


def test_a_plan_says_how_far_it_was_checked(
    constants: Constants, measurements: Measurements
) -> None:
    def basis(items: int) -> str:
        return make_plan(Workload(items=items), constants, measurements).basis

    assert (basis(10), basis(1000), basis(1001)) == ("checked", "checked", "extrapolated")
    nothing = dataclasses.replace(measurements, runs=[])
    plan = make_plan(Workload(items=10), constants, nothing)
    assert (plan.basis, plan.checked_items) == ("extrapolated", [])
