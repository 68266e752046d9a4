"""Compares plans with measurements of real indexes."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from aladin_index.plan.constants import Constants, MeasuredRun, Measurements
from aladin_index.plan.plan import plan_embedded
from aladin_index.plan.workload import Workload

# Largest accepted relative deviation of a plan from the measurement.
TOLERANCE = 0.25


class Compared(NamedTuple):
    """One value of one index, planned and measured.

    Attributes:
        items: Number of items of the index.
        name: Name of the value, with its unit.
        planned: Expected value.
        measured: Measured value.
    """

    items: int
    name: str
    planned: float
    measured: float

    @property
    def ratio(self) -> float:
        """Planned value divided by the measured value."""
        return self.planned / self.measured

    @property
    def within(self) -> bool:
        """Whether the deviation is at most `TOLERANCE` of the measured value."""
        return abs(self.ratio - 1) <= TOLERANCE


def compare(constants: Constants, measurements: Measurements) -> list[Compared]:
    """Plan each measured index, and compare the values."""
    return [each for run in measurements.runs for each in _compared(constants, run)]


def _compared(constants: Constants, run: MeasuredRun) -> Iterator[Compared]:
    workload = Workload(
        items=run.items,
        token_dtype=run.token_dtype,
        generations=1,
        machine_memory_bytes=constants.machine.memory_bytes,
        # Times are for the number of threads of the measurement.
        machine_cores=constants.machine.threads,
    )
    plan = plan_embedded(workload, constants)
    for name, planned, measured in (
        ("disk_bytes", plan.disk_bytes, run.disk_bytes),
        ("serving_bytes", plan.memory_bytes, run.serving_bytes),
        ("building_bytes", plan.build_memory_bytes, run.building_bytes),
        ("build_s", plan.build.indexing_s, run.build_s),
        ("p50_s", plan.search.p50_s, run.p50_s),
        ("p95_s", plan.search.p95_s, run.p95_s),
    ):
        yield Compared(run.items, name, planned, measured)
