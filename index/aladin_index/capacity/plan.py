"""Plans for a workload: FAISS and files on every machine, or a vector database cluster.

The cluster is modelled on Milvus: a collection is cut into segments, each with its own index;
query nodes hold the segments in memory, every replica all of them; a search asks all nodes of one
replica and waits for the slowest. The service encodes the query and re-ranks the candidates, whose
tokens come with them.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal, NamedTuple

from aladin_index.capacity.constants import Constants, MeasuredRun, Measurements
from aladin_index.capacity.costs import (
    BuildTime,
    IndexSizes,
    PlannedFirstStage,
    align_s,
    build_time,
    engine_item_bytes,
    first_stage_of,
    graph_growth,
    index_sizes,
    search_latency,
    token_bytes,
    training_bytes,
)
from aladin_index.capacity.workload import (
    MOST_BUSY,
    MOST_MACHINES,
    Latency,
    Workload,
    fewest_machines,
    machines_for_load,
    waiting,
)

# Milvus's `dataCoord.segment.maxSize`; segments are never larger.
SEGMENT_BYTES = 2**30
# Milvus moves segments away from a node whose memory is more than 90 % full
# (`queryCoord.overloadedMemoryThresholdPercentage`); another 10 % is for segments being loaded.
USABLE_MEMORY = 0.8
# A round trip between two machines of one data centre; there are two: from the service to the
# proxy, and from the proxy to the query nodes. Not measured: all ran on one machine.
ROUND_TRIP_S = 0.0005
# Coordinators, proxies, etcd and the object storage, each with a replica for failover.
OTHER_MACHINES = 3

# Largest accepted relative deviation of a plan from the measurement.
TOLERANCE = 0.25


@dataclass(frozen=True, kw_only=True)
class EmbeddedPlan:
    """Requirements of an index in files.

    Attributes:
        first_stage: First stage that is built.
        sizes: Sizes of one generation.
        disk_bytes: Disk space per machine, including all kept generations.
        memory_bytes: Memory of one process with all pages that searches access.
        least_memory_bytes: Memory without the pages of vectors and tokens, which are then read from
            the disk.
        resident: Share of the pages of vectors and tokens that fits in the machine's memory.
        build_memory_bytes: Memory of the building process, including the vectors that it maps.
        least_build_memory_bytes: Memory of the building process without the mapped vectors, which
            the system can reclaim.
        build: Times of the build.
        search: Latency of one search alone, with its query already encoded.
        query: Latency of one query at the load of the workload, from its text to its hits.
        machines: Number of serving machines, or None if the plan is impossible, see `problem`.
        problem: Reason why the plan is impossible, if it is.
    """

    first_stage: PlannedFirstStage
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
    """Plan an index in files."""
    stage = first_stage_of(workload, constants.first_stage)
    sizes = index_sizes(workload, stage, constants.files)
    least = constants.process.serving_bytes + sizes.first_stage
    paged = sizes.embeddings + sizes.tokens
    resident = min(1.0, max(0.0, (workload.machine_memory_bytes - least) / paged))
    search = search_latency(workload, stage, resident, constants)
    # The time of encoding varies as little as that of searching.
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


@dataclass(frozen=True, kw_only=True)
class ClusterPlan:
    """Requirements of an index in a vector database.

    Attributes:
        segments: Number of segments of the index.
        segment_items: Number of items of a segment.
        disk_bytes: Object storage space of all kept generations, each stored once.
        memory_bytes: Memory of the segments of one replica, including vectors and tokens.
        build_s: Seconds to encode, pack and write the items, to insert them and to index them.
        insert_s: Part of it for inserting the items.
        index_s: Part of it for indexing the items, on the cores of all query nodes.
        query: Latency of one query at the load of the workload, from its text to its hits.
        query_nodes: Machines of all replicas, or None if the plan is impossible, see `problem`.
        service_machines: Machines that run `aladin serve`.
        other_machines: Machines that run the other components of the vector database.
        problem: Reason why the plan is impossible, if it is.
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
        """Number of all machines, or None if the plan is impossible."""
        if self.query_nodes is None:
            return None
        return self.query_nodes + self.service_machines + self.other_machines


def plan_cluster(workload: Workload, constants: Constants, embedded: EmbeddedPlan) -> ClusterPlan:
    """Plan an index in a vector database.

    Args:
        workload: Workload to plan for.
        constants: Measured costs.
        embedded: Plan of the file index for the same workload, which is pushed to the vector
            database.
    """
    engine = constants.engine
    item_bytes = engine_item_bytes(workload, engine)
    segment_items = max(1, min(int(SEGMENT_BYTES / item_bytes), workload.items))
    segments = math.ceil(workload.items / segment_items)
    memory = round(workload.items * (item_bytes + engine.vector_overhead_bytes))

    load = workload.queries_per_s / workload.replicas  # of a replica
    growth = graph_growth(segment_items, engine)
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
        """Return the latency with this number of query nodes per replica."""
        held = math.ceil(segments / nodes)
        # The cores of a node process the segments of a query in parallel. If there are more
        # segments than cores, they are processed in turns; if there are fewer, other queries run at
        # the same time.
        node_s = math.ceil(held / workload.machine_cores) * segment_s
        at_once = max(1, workload.machine_cores // held)
        node = Latency.spread_by(node_s, engine.spread).then(waiting(node_s, load, at_once))
        return of_service.then(called).then(between).then(node.slowest_of(min(nodes, segments)))

    for_memory = math.ceil(memory / (USABLE_MEMORY * workload.machine_memory_bytes))
    for_load = math.ceil(load * segments * segment_s / (workload.machine_cores * MOST_BUSY))
    start = max(for_memory, for_load)
    # A node without a segment is idle.
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
    """Explain why no number of nodes suffices, from the latency with one segment per node."""
    if not math.isfinite(alone.p95_s):
        return "each node of a replica gets more queries than it can answer; more replicas help"
    return f"a query takes more than {workload.p95_ms:g} ms (p95) on any number of query nodes"


@dataclass(frozen=True, kw_only=True)
class CapacityPlan:
    """Requirements of a workload.

    Attributes:
        workload: Workload of the plan.
        constants: Constants that the plan was computed from.
        embedded: FAISS and files.
        cluster: Plan for a vector database.
        checked_items: Sizes at which `embedded` was compared with measurements.
        basis: Basis of `embedded`: within the measured sizes, or extrapolated beyond them. The
            cluster is always extrapolated, from one server.
    """

    workload: Workload
    constants: Constants
    embedded: EmbeddedPlan
    cluster: ClusterPlan
    checked_items: list[int]
    basis: Literal["checked", "extrapolated"]


def make_plan(workload: Workload, constants: Constants, measurements: Measurements) -> CapacityPlan:
    """Plan a workload.

    Raises:
        ConfigError: If no first stage of the workload was measured.
    """
    embedded = plan_embedded(workload, constants)
    checked = sorted(each.items for each in measurements.runs)
    return CapacityPlan(
        workload=workload,
        constants=constants,
        embedded=embedded,
        cluster=plan_cluster(workload, constants, embedded),
        checked_items=checked,
        basis="checked" if checked and workload.items <= checked[-1] else "extrapolated",
    )


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
