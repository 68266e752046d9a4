"""The plan for an engine: by hand on one node, by its properties on many."""

import dataclasses
import math

import pytest

from aladin_index.capacity.constants import Constants
from aladin_index.capacity.costs import align_s
from aladin_index.capacity.plan import (
    OTHER_MACHINES,
    ROUND_TRIP_S,
    SEGMENT_BYTES,
    ClusterPlan,
    plan_cluster,
    plan_embedded,
)
from aladin_index.capacity.workload import Workload


def planned(workload: Workload, constants: Constants) -> ClusterPlan:
    return plan_cluster(workload, constants, plan_embedded(workload, constants))


ITEM = 1024 + 49 * 132 * 4 / 3 + 700


def test_one_node_of_a_replica_is_added_up(constants: Constants) -> None:
    workload = Workload(items=100_000, queries_per_s=0.001, replicas=2)
    plan = planned(workload, constants)
    assert (plan.segment_items, plan.segments) == (100_000, 1)
    assert plan.memory_bytes == pytest.approx(100_000 * (ITEM + 280))
    assert plan.disk_bytes == 2 * plan.memory_bytes
    assert (plan.query_nodes, plan.service_machines) == (2, 2)
    assert plan.machines == 4 + OTHER_MACHINES
    tokens = 100 * 49 * 132 * 5e-9
    service = 0.01 + 2e-4 + align_s(workload, constants.forms["int8"]) + tokens
    expected = service + 0.004 + 2 * ROUND_TRIP_S + 0.0005
    assert plan.query.p50_s == pytest.approx(expected)
    assert plan.query.p95_s == pytest.approx(1.2 * service + 1.5 * 0.0045 + 2 * ROUND_TRIP_S)
    assert plan.insert_s == pytest.approx(100_000 * ITEM * 5e-8)
    assert plan.index_s == pytest.approx(100_000 * 5e-4 / 16)


def test_segments_hold_all_items_and_are_no_larger_than_the_engine_makes_them(
    constants: Constants,
) -> None:
    for items in (1, 10**6, 10**8, 10**9):
        plan = planned(Workload(items=items), constants)
        assert plan.segments * plan.segment_items >= items
        assert (plan.segments - 1) * plan.segment_items < items
        assert plan.segment_items * ITEM <= SEGMENT_BYTES


def test_nodes_hold_what_they_are_given(constants: Constants) -> None:
    for items in (10**7, 10**8, 10**9):
        workload = Workload(items=items, queries_per_s=1.0, p95_ms=1000.0, replicas=3)
        plan = planned(workload, constants)
        assert plan.query_nodes is not None
        assert plan.query_nodes % 3 == 0
        room = plan.query_nodes // 3 * workload.machine_memory_bytes
        assert plan.memory_bytes <= 0.8 * room


def test_answers_come_in_time_or_the_reason_why_not(constants: Constants) -> None:
    possible = 0
    for p95_ms in (5.0, 20.0, 40.0, 100.0):
        plan = planned(Workload(items=10**8, queries_per_s=200.0, p95_ms=p95_ms), constants)
        assert (plan.query_nodes is None) == (plan.problem is not None) == (plan.machines is None)
        if plan.query_nodes is not None:
            possible += 1
            assert plan.query.p95_s <= p95_ms / 1000
    assert 0 < possible < 4


def test_more_queries_never_need_fewer_nodes(constants: Constants) -> None:
    nodes: list[float] = []
    for queries_per_s in (1.0, 100.0, 1000.0, 10_000.0):
        plan = planned(Workload(items=10**8, queries_per_s=queries_per_s, p95_ms=200.0), constants)
        assert plan.query_nodes is not None
        # All segments are searched for each query, by cores that are busy for 0.6 at most.
        segment_s = 0.0005 * math.log(plan.segment_items) / math.log(100_000)
        busy = queries_per_s * plan.segments * segment_s / (16 * plan.query_nodes)
        assert busy <= 0.6
        nodes.append(plan.query_nodes)
    assert nodes == sorted(nodes)
    assert nodes[-1] > nodes[0]


def test_fewer_bits_of_a_token_take_less_of_everything(constants: Constants) -> None:
    workload = Workload(items=10**9, p95_ms=1000.0)
    large = planned(workload, constants)
    small = planned(dataclasses.replace(workload, token_dtype="2bit"), constants)
    assert small.memory_bytes < large.memory_bytes
    assert small.segments < large.segments
    assert small.insert_s < large.insert_s
