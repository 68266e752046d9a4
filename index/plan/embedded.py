"""The plan for FAISS and files: every machine has the whole index."""

from __future__ import annotations

import math
from dataclasses import dataclass

from index.plan.build_time import BuildTime, build_time
from index.plan.constants import Constants
from index.plan.first_stage import (
    FirstStage,
    compared_rows,
    first_stage_of,
    search_s,
    training_bytes,
)
from index.plan.latency import Latency, waiting
from index.plan.machines import MOST_MACHINES, fewest_machines, machines_for_load
from index.plan.second_stage import align_s
from index.plan.sizes import IndexSizes, embedding_bytes, index_sizes, token_bytes
from index.plan.workload import Workload

_PAGE_BYTES = 4096


@dataclass(frozen=True, kw_only=True)
class EmbeddedPlan:
    """What an index of files takes.

    Attributes:
        first_stage: that is built.
        sizes: of one generation.
        disk_bytes: of one machine, all generations that are kept.
        memory_bytes: of one process with all pages that searches touch.
        least_memory_bytes: without those of vectors and tokens, which are then read from the
            disk.
        resident: share of those that the machine's memory holds.
        build_memory_bytes: of the process that builds, with the vectors that it maps.
        least_build_memory_bytes: without those, which the system can take back.
        build: its times.
        search: one search alone, its query encoded already.
        query: one query at the load of the workload, from its text to its hits.
        machines: that serve; None: it cannot be done, see `problem`.
        problem: why not.
    """

    first_stage: FirstStage
    sizes: IndexSizes
    disk_bytes: int
    memory_bytes: int
    least_memory_bytes: int
    resident: float
    build_memory_bytes: int
    least_build_memory_bytes: int
    build: BuildTime
    search: Latency
    query: Latency
    machines: int | None
    problem: str | None


def plan_embedded(workload: Workload, constants: Constants) -> EmbeddedPlan:
    """Plan an index of files."""
    stage = first_stage_of(workload, constants.first_stage)
    sizes = index_sizes(workload, stage, constants.files)
    least = constants.process.serving_bytes + sizes.first_stage
    paged = sizes.embeddings + sizes.tokens
    resident = min(1.0, max(0.0, (workload.machine_memory_bytes - least) / paged))
    search = _search(workload, stage, resident, constants)
    # Encoding varies as little as searching does.
    encoding = Latency.spread_by(constants.encoding.text_s, constants.search.spread)
    alone = encoding.then(search)

    def query(machines: int) -> Latency:
        load = workload.queries_per_s / machines
        return alone.then(waiting(alone.p50_s, load, workload.machine_cores))

    start = max(workload.replicas, machines_for_load(workload, alone.p50_s))
    wanted_s = workload.p95_ms / 1000
    building = (
        constants.process.building_bytes + sizes.first_stage + training_bytes(stage, workload)
    )
    problems: list[str] = []
    if least > workload.machine_memory_bytes:
        problems.append(
            "the first stage does not fit into the memory of one machine: it takes "
            f"{math.ceil(least / 2**30):,} GiB"
        )
    if alone.p95_s > wanted_s:
        problems.append(
            f"a query takes {1000 * alone.p95_s:,.0f} ms (p95) on any number of such machines"
        )
    machines = None
    if not problems:
        machines = fewest_machines(start, MOST_MACHINES, query, wanted_s)
        if machines is None:
            problems.append(f"queries wait for too long on {MOST_MACHINES:,} machines")
    return EmbeddedPlan(
        first_stage=stage,
        sizes=sizes,
        disk_bytes=workload.generations * sizes.total,
        memory_bytes=constants.process.serving_bytes + sizes.mapped,
        least_memory_bytes=least,
        resident=resident,
        build_memory_bytes=building + sizes.embeddings,
        least_build_memory_bytes=building,
        build=build_time(workload, stage, sizes, constants),
        search=search,
        query=query(start if machines is None else machines),
        machines=machines,
        problem="; ".join(problems) or None,
    )


def _search(
    workload: Workload, stage: FirstStage, resident: float, constants: Constants
) -> Latency:
    """Expect the time of one search alone."""
    around = constants.search
    seconds = (
        search_s(stage, workload, constants.first_stage)
        + align_s(workload, constants.forms[workload.token_dtype])
        + around.around_s
    )
    # Each candidate, and each row that is compared exactly, lies on pages of its own.
    pages = workload.candidates * _pages_of(token_bytes(workload))
    pages += compared_rows(stage, workload) * _pages_of(embedding_bytes(workload))
    missing_s = (1 - resident) * pages * around.page_s
    return Latency.spread_by(seconds + missing_s, around.spread)


def _pages_of(size: int) -> float:
    """Return how many pages so many bytes lie on, on average, if they begin anywhere."""
    return 1 + (size - 1) / _PAGE_BYTES
