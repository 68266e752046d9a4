"""The plan for files: by hand where it is small, by its properties where it is not."""

import dataclasses

import pytest

from aladin_index.capacity.constants import Constants
from aladin_index.capacity.costs import align_s, build_time, first_stage_of, index_sizes, pack_s
from aladin_index.capacity.plan import plan_embedded
from aladin_index.capacity.workload import Workload

SMALL = Workload(items=10_000, machine_cores=2, queries_per_s=1.0)


def test_a_small_index_is_added_up(constants: Constants) -> None:
    plan = plan_embedded(SMALL, constants)
    assert plan.first_stage.factory == "Flat"
    vectors, tokens = 10_000 * 1024, 10_000 * (49 * 132 + 8)
    assert plan.sizes == (vectors, vectors, tokens, 2_500_000)
    assert plan.disk_bytes == 2 * (2 * vectors + tokens + 2_500_000)
    assert plan.memory_bytes == 5 * 10**8 + 2 * vectors + tokens
    assert plan.least_memory_bytes == 5 * 10**8 + vectors
    assert plan.build_memory_bytes == 7 * 10**8 + 2 * vectors
    assert plan.least_build_memory_bytes == 7 * 10**8 + vectors
    # 10.24 MB of vectors; 12 words are as slow as 16.
    flat = 2e-4 + (vectors - 1e7) / 4e7 * 1.8e-3
    align = 100 * 49 * 128 * (2e-10 + 16e-11)
    assert plan.search.p50_s == pytest.approx(flat + align + 2e-4)
    assert plan.search.p95_s == pytest.approx(1.2 * plan.search.p50_s)
    # One query a second waits for nobody, 95 of 100 times.
    assert plan.query.p50_s == pytest.approx(plan.search.p50_s + 0.01)
    assert (plan.machines, plan.problem, plan.resident) == (2, None, 1.0)


@pytest.mark.parametrize(("words", "billed"), [(1, 16), (16, 16), (17, 32), (40, 48)])
def test_words_are_compared_sixteen_at_a_time(
    words: int, billed: int, constants: Constants
) -> None:
    workload = Workload(items=10, tokens=3, token_dim=8, candidates=7, words=words)
    expected = 7 * 3 * 8 * (2e-10 + billed * 1e-11)
    assert align_s(workload, constants.forms["int8"]) == pytest.approx(expected)


def test_a_build_is_added_up(constants: Constants) -> None:
    workload = dataclasses.replace(SMALL, build_machines=4)
    stage = first_stage_of(workload, constants.first_stage)
    sizes = index_sizes(workload, stage, constants.files)
    time = build_time(workload, stage, sizes, constants)
    assert time.encode_s == pytest.approx(10_000 * 0.02 / 2 / 4)
    assert time.pack_s == pytest.approx(10_000 * 49 * 128 * 1e-8 / 4)
    assert pack_s(workload, constants.forms["int8"]) == pytest.approx(4 * time.pack_s)
    assert time.begin_s == 0.25
    assert time.write_s == pytest.approx(10_000 * 1e-5 + sizes.mapped * 1e-9)
    # Of two threads, as was measured.
    assert time.first_stage_s == pytest.approx(10_000 * 256 * 5e-9)
    assert time.total_s == pytest.approx(time.encode_s + time.indexing_s)


def test_more_cores_build_faster_and_a_rate_of_photos_is_believed(constants: Constants) -> None:
    before = plan_embedded(SMALL, constants).build
    more = plan_embedded(dataclasses.replace(SMALL, machine_cores=8), constants).build
    assert more.encode_s == pytest.approx(before.encode_s / 4)
    assert more.first_stage_s == pytest.approx(before.first_stage_s / 4)
    assert (more.pack_s, more.write_s) == (before.pack_s, before.write_s)
    told = plan_embedded(dataclasses.replace(SMALL, photos_per_s=500.0), constants).build
    assert told.encode_s == pytest.approx(20)


def test_more_queries_need_more_machines_and_are_answered_in_time(constants: Constants) -> None:
    machines: list[int] = []
    for queries_per_s in (1.0, 100.0, 1000.0, 10_000.0):
        workload = dataclasses.replace(SMALL, queries_per_s=queries_per_s, p95_ms=20.0)
        plan = plan_embedded(workload, constants)
        assert plan.machines is not None
        machines.append(plan.machines)
        assert plan.query.p95_s <= 0.020
        busy = queries_per_s * (plan.search.p50_s + 0.01) / (2 * plan.machines)
        assert busy <= 0.6
    assert machines[0] == 2
    assert machines == sorted(machines)
    assert machines[-1] > machines[-2] > machines[0]


def test_a_time_below_that_of_one_query_is_impossible(constants: Constants) -> None:
    plan = plan_embedded(dataclasses.replace(SMALL, p95_ms=5.0), constants)
    assert plan.machines is None
    assert plan.problem == "a query takes 13 ms (p95) on any number of such machines"


def test_what_memory_does_not_hold_is_read_from_the_disk(constants: Constants) -> None:
    workload = Workload(items=10**8, p95_ms=10_000)
    plan = plan_embedded(workload, constants)
    paged = plan.sizes.embeddings + plan.sizes.tokens
    in_memory = dataclasses.replace(workload, machine_memory_bytes=plan.memory_bytes)
    half = dataclasses.replace(workload, machine_memory_bytes=plan.least_memory_bytes + paged // 2)
    whole_plan, half_plan = plan_embedded(in_memory, constants), plan_embedded(half, constants)
    assert (whole_plan.resident, half_plan.resident) == (1.0, pytest.approx(0.5))
    # A hundred candidates of 6,468 bytes, and three times as many vectors of 1,024.
    pages = 100 * (1 + 6467 / 4096) + 300 * (1 + 1023 / 4096)
    missed = half_plan.search.p50_s - whole_plan.search.p50_s
    assert missed == pytest.approx(0.5 * pages * 1e-4)
    assert plan.search.p50_s > half_plan.search.p50_s


def test_a_first_stage_beyond_the_memory_is_impossible(constants: Constants) -> None:
    plan = plan_embedded(Workload(items=10**9, p95_ms=10_000), constants)
    assert (plan.machines, plan.resident) == (None, 0.0)
    memory = "the first stage does not fit into the memory of one machine: it takes 128 GiB"
    assert plan.problem == memory
    both = plan_embedded(Workload(items=10**9, p95_ms=10), constants).problem
    assert both is not None
    assert both.startswith(f"{memory}; a query takes ")
    large = plan_embedded(
        Workload(items=10**9, p95_ms=10_000, machine_memory_bytes=128 * 2**30), constants
    )
    assert (large.problem, large.machines) == (None, 2)
