"""The output of `aladin index plan`."""

from __future__ import annotations

from dataclasses import asdict
from math import isfinite
from typing import Any

from rich.table import Table

from aladin_index.capacity.plan import TOLERANCE, CapacityPlan
from aladin_index.capacity.workload import Latency

_HOUR_S = 3600.0


def plan_data(plan: CapacityPlan) -> dict[str, Any]:
    """Return a plan as JSON data."""
    embedded, cluster, build = plan.embedded, plan.cluster, plan.embedded.build
    return {
        "workload": asdict(plan.workload),
        "embedded": {
            "basis": plan.basis,
            "first_stage": embedded.first_stage._asdict(),
            "generation_bytes": embedded.sizes._asdict(),
            "disk_bytes": embedded.disk_bytes,
            "memory_bytes": embedded.memory_bytes,
            "least_memory_bytes": embedded.least_memory_bytes,
            "resident": embedded.resident,
            "build_memory_bytes": embedded.build_memory_bytes,
            "least_build_memory_bytes": embedded.least_build_memory_bytes,
            "build_hours": {
                name.removesuffix("_s"): seconds / _HOUR_S
                for name, seconds in build._asdict().items()
            }
            | {"total": build.total_s / _HOUR_S},
            "search_ms": _latency_data(embedded.search),
            "query_ms": _latency_data(embedded.query),
            "machines": embedded.machines,
            "problem": embedded.problem,
        },
        "cluster": {
            "basis": "extrapolated",
            "segments": cluster.segments,
            "segment_items": cluster.segment_items,
            "disk_bytes": cluster.disk_bytes,
            "memory_bytes": cluster.memory_bytes,
            "build_hours": {
                "insert": cluster.insert_s / _HOUR_S,
                "index": cluster.index_s / _HOUR_S,
                "total": cluster.build_s / _HOUR_S,
            },
            "query_ms": _latency_data(cluster.query),
            "query_nodes": cluster.query_nodes,
            "service_machines": cluster.service_machines,
            "other_machines": cluster.other_machines,
            "machines": cluster.machines,
            "problem": cluster.problem,
        },
        "checked_items": plan.checked_items,
        "constants": {
            "command": plan.constants.command,
            "measured_on": plan.constants.measured_on,
            "machine": asdict(plan.constants.machine),
            "network": plan.constants.encoding.network,
            "engine": plan.constants.engine.engine,
        },
    }


def plan_table(plan: CapacityPlan) -> Table:
    """Build a table that compares both ways to store the index."""
    workload, embedded, cluster = plan.workload, plan.embedded, plan.cluster
    table = Table(title=f"{workload.items:,} photos", title_justify="left")
    table.add_column("", no_wrap=True)
    table.add_column(f"index of files ({plan.basis})")
    table.add_column("engine, as Milvus (extrapolated)")
    stage, sizes, build = embedded.first_stage, embedded.sizes, embedded.build
    width = "" if stage.lists == 0 else f", {stage.width} of {stage.lists:,} lists"
    table.add_row(
        "first stage",
        f"{stage.factory}{width}",
        f"{plan.constants.engine.index}, {cluster.segments:,} segments of "
        f"{cluster.segment_items:,}",
    )
    table.add_row(
        "memory",
        f"{_size(embedded.memory_bytes)} a machine, all in memory; at least "
        f"{_size(embedded.least_memory_bytes)}",
        f"{_size(cluster.memory_bytes)} a replica",
    )
    table.add_row(
        "memory to build",
        f"{_size(embedded.build_memory_bytes)}; at least "
        f"{_size(embedded.least_build_memory_bytes)}",
        "as an index of files",
    )
    table.add_row(
        "disk",
        f"{_size(embedded.disk_bytes)} a machine (of a generation: "
        f"{_size(sizes.first_stage)} first stage, {_size(sizes.embeddings)} embeddings, "
        f"{_size(sizes.tokens)} tokens, {_size(sizes.items)} items)",
        f"{_size(cluster.disk_bytes)} of object storage",
    )
    table.add_row(
        "build",
        f"{_time(build.total_s)}: encode {_time(build.encode_s)}, pack {_time(build.pack_s)}, "
        f"write {_time(build.write_s)}, first stage {_time(build.first_stage_s)}",
        f"{_time(cluster.build_s)}: as an index of files, insert {_time(cluster.insert_s)}, "
        f"index {_time(cluster.index_s)} on as many cores as a replica's nodes have",
    )
    table.add_row("search alone, p50 / p95", _latency(embedded.search), "")
    table.add_row(
        f"query at {workload.queries_per_s:g} a second, p50 / p95",
        _latency(embedded.query),
        _latency(cluster.query),
    )
    table.add_row(
        "machines",
        _machines(embedded.machines, embedded.problem),
        _machines(cluster.machines, cluster.problem)
        + (
            ""
            if cluster.query_nodes is None
            else f": {cluster.query_nodes:,} query nodes ({workload.replicas} replicas), "
            f"{cluster.service_machines:,} services, {cluster.other_machines:,} others"
        ),
    )
    return table


def plan_notes(plan: CapacityPlan) -> list[str]:
    """Describe what the numbers are based on, and their limits."""
    workload, constants = plan.workload, plan.constants
    machine = constants.machine
    notes = [
        f"Machines of {workload.machine_cores} cores and "
        f"{_size(workload.machine_memory_bytes)}; constants measured on {constants.measured_on} "
        f"({machine.processor}, {machine.cores} cores), encoding with {constants.encoding.network}."
    ]
    sizes = ", ".join(f"{items:,}" for items in plan.checked_items) or "no size"
    if plan.basis == "checked":
        notes.append(
            f"The index of files is held against real ones at {sizes} items, within "
            f"{100 * TOLERANCE:.0f} %."
        )
    else:
        notes.append(
            f"Extrapolated: the index of files is held against real ones at {sizes} items only."
        )
    notes.append(f"The engine is extrapolated from one server ({constants.engine.engine}).")
    if plan.embedded.least_build_memory_bytes > workload.machine_memory_bytes:
        notes.append(
            "The index of files, also the one that is put into an engine, has to be built on a "
            f"machine of at least {_size(plan.embedded.least_build_memory_bytes)}."
        )
    if plan.embedded.resident < 1:
        notes.append(
            f"A machine's memory holds {100 * plan.embedded.resident:.0f} % of the vectors and "
            "tokens; the rest is read from its disk, which is in the times."
        )
    return notes


def _latency_data(latency: Latency) -> dict[str, float | None]:
    """Return milliseconds, or None where the queue of queries would grow without bound."""
    return {
        "p50": 1000 * latency.p50_s if isfinite(latency.p50_s) else None,
        "p95": 1000 * latency.p95_s if isfinite(latency.p95_s) else None,
    }


def _latency(latency: Latency) -> str:
    if not isfinite(latency.p95_s):
        return "too many queries"
    return f"{1000 * latency.p50_s:.3g} / {1000 * latency.p95_s:.3g} ms"


def _machines(count: int | None, problem: str | None) -> str:
    return f"impossible: {problem}" if count is None else f"{count:,}"


def _size(size: float) -> str:
    for unit in ("B", "KiB", "MiB", "GiB"):
        if size < 1024:
            return f"{size:.3g} {unit}"
        size /= 1024
    return f"{size:,.3g} TiB" if size < 1000 else f"{size:,.0f} TiB"


def _time(seconds: float) -> str:
    if seconds < 60:
        return f"{seconds:.2g} s"
    if seconds < _HOUR_S:
        return f"{seconds / 60:.2g} min"
    return f"{seconds / _HOUR_S:,.3g} h"
