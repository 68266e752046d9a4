"""The plan for an engine: nodes that hold segments of the index, and a service before them.

The shape is Milvus's: a collection is cut into segments, each indexed by itself; query nodes hold
them in memory, every replica all of them; a search asks all nodes of a replica and waits for the
slowest. The service encodes the query and orders the candidates, whose tokens come with them.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from index.plan.constants import Constants, EngineConstants
from index.plan.embedded import EmbeddedPlan
from index.plan.latency import Latency, waiting
from index.plan.machines import MOST_BUSY, fewest_machines, machines_for_load
from index.plan.second_stage import align_s
from index.plan.sizes import embedding_bytes, token_bytes
from index.plan.workload import Workload

# Milvus's `dataCoord.segment.maxSize`; larger segments are never made.
SEGMENT_BYTES = 2**30
# Milvus moves segments away from a node that is fuller than nine tenths of its memory
# (`queryCoord.overloadedMemoryThresholdPercentage`); a tenth more is for what is being loaded.
USABLE_MEMORY = 0.8
# A round trip between two machines of one data centre, and there are two: from the service to
# the proxy, and from there to the query nodes. Not measured here: all was on one machine.
ROUND_TRIP_S = 0.0005
# Coordinators, proxies, etcd and the object storage, each where another may fail.
OTHER_MACHINES = 3


@dataclass(frozen=True, kw_only=True)
class ClusterPlan:
    """What an index in an engine takes.

    Attributes:
        segments: of the index.
        segment_items: items of one.
        disk_bytes: of the object storage, all generations that are kept, each once.
        memory_bytes: of one replica's segments, vectors and tokens included.
        build_s: seconds to encode, pack and write the items, to put them in, and to index them.
        insert_s: of that, to put them in.
        index_s: of that, to index them, on all query nodes' cores.
        query: one query at the load of the workload, from its text to its hits.
        query_nodes: machines of all replicas; None: it cannot be done, see `problem`.
        service_machines: that run `aladin serve`.
        other_machines: that run the rest of the engine.
        problem: why not.
    """

    segments: int
    segment_items: int
    disk_bytes: int
    memory_bytes: int
    build_s: float
    insert_s: float
    index_s: float
    query: Latency
    query_nodes: int | None
    service_machines: int
    other_machines: int
    problem: str | None

    @property
    def machines(self) -> int | None:
        """All machines; None: it cannot be done."""
        if self.query_nodes is None:
            return None
        return self.query_nodes + self.service_machines + self.other_machines


def plan_cluster(workload: Workload, constants: Constants, embedded: EmbeddedPlan) -> ClusterPlan:
    """Plan an index in an engine.

    Args:
        workload: what it is for.
        constants: what was measured.
        embedded: of the same workload; the index of files that is pushed to the engine.
    """
    engine = constants.engine
    item_bytes = _item_bytes(workload, engine)
    segment_items = max(1, min(int(SEGMENT_BYTES / item_bytes), workload.items))
    segments = math.ceil(workload.items / segment_items)
    memory = round(workload.items * (item_bytes + engine.vector_overhead_bytes))

    load = workload.queries_per_s / workload.replicas  # of a replica
    growth = _growth(segment_items, engine)
    segment_s = engine.segment_s * growth
    tokens_s = workload.candidates * token_bytes(workload) * engine.byte_s
    service_s = (
        constants.encoding.text_s
        + constants.search.around_s
        + align_s(workload, constants.forms[workload.token_dtype])
        + tokens_s
    )
    services = max(workload.replicas, machines_for_load(workload, service_s))
    of_service = Latency.spread_by(service_s, constants.search.spread).then(
        waiting(service_s, workload.queries_per_s / services, workload.machine_cores)
    )
    called = Latency.spread_by(engine.call_s, engine.spread)
    between = Latency(2 * ROUND_TRIP_S, 2 * ROUND_TRIP_S)

    def query(nodes: int) -> Latency:
        """Return the latency with so many query nodes of a replica."""
        held = math.ceil(segments / nodes)
        # The cores of a node take the segments of a query together. Where there are more
        # segments than cores they come in turns; where there are fewer, other queries fit beside.
        node_s = math.ceil(held / workload.machine_cores) * segment_s
        at_once = max(1, workload.machine_cores // held)
        node = Latency.spread_by(node_s, engine.spread).then(waiting(node_s, load, at_once))
        return of_service.then(called).then(between).then(node.slowest_of(min(nodes, segments)))

    for_memory = math.ceil(memory / (USABLE_MEMORY * workload.machine_memory_bytes))
    for_load = math.ceil(load * segments * segment_s / (workload.machine_cores * MOST_BUSY))
    start = max(for_memory, for_load)
    # A node without a segment has nothing to do.
    nodes = fewest_machines(start, segments, query, workload.p95_ms / 1000)
    insert_s = workload.items * item_bytes * engine.insert_byte_s
    cores = workload.machine_cores * (start if nodes is None else nodes)
    index_s = workload.items * engine.index_s * growth / cores
    return ClusterPlan(
        segments=segments,
        segment_items=segment_items,
        disk_bytes=workload.generations * memory,
        memory_bytes=memory,
        build_s=embedded.build.total_s + insert_s + index_s,
        insert_s=insert_s,
        index_s=index_s,
        query=query(start if nodes is None else nodes),
        query_nodes=None if nodes is None else nodes * workload.replicas,
        service_machines=services,
        other_machines=OTHER_MACHINES,
        problem=None if nodes is not None else _too_slow(workload, query(max(start, segments))),
    )


def _too_slow(workload: Workload, alone: Latency) -> str:
    """Say why no number of nodes is enough, by what a query takes where each has one segment."""
    if not math.isfinite(alone.p95_s):
        return "each node of a replica gets more queries than it can answer; more replicas help"
    return f"a query takes more than {workload.p95_ms:g} ms (p95) on any number of query nodes"


def _item_bytes(workload: Workload, engine: EngineConstants) -> float:
    """Return what the engine keeps of an item, its place in the index aside."""
    tokens = token_bytes(workload) * engine.token_expansion
    return embedding_bytes(workload) + tokens + engine.item_bytes


def _growth(items: int, engine: EngineConstants) -> float:
    """Return how many times as long as in what was measured a graph is searched, and added to.

    Both take a time that grows with the logarithm of its size (Malkov and Yashunin, 2018,
    section 4.2).
    """
    return math.log(max(items, 2)) / math.log(engine.items)
