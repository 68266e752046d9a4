"""The plan: what some items take, embedded and in a cluster, and how far it can be trusted."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from index.plan.cluster import ClusterPlan, plan_cluster
from index.plan.constants import Constants
from index.plan.embedded import EmbeddedPlan, plan_embedded
from index.plan.measurements import Measurements
from index.plan.workload import Workload


@dataclass(frozen=True, kw_only=True)
class Plan:
    """What a workload takes.

    Attributes:
        workload: that it is for.
        constants: that it was computed from.
        embedded: FAISS and files.
        cluster: an engine.
        checked_items: sizes at which `embedded` was held against measurements.
        basis: of `embedded`: within those sizes, or extrapolated beyond them. The cluster is
            always extrapolated, from one server.
    """

    workload: Workload
    constants: Constants
    embedded: EmbeddedPlan
    cluster: ClusterPlan
    checked_items: list[int]
    basis: Literal["checked", "extrapolated"]


def make_plan(workload: Workload, constants: Constants, measurements: Measurements) -> Plan:
    """Plan a workload.

    Raises:
        ConfigError: no first stage of the workload was measured.
    """
    embedded = plan_embedded(workload, constants)
    checked = sorted(each.items for each in measurements.runs)
    return Plan(
        workload=workload,
        constants=constants,
        embedded=embedded,
        cluster=plan_cluster(workload, constants, embedded),
        checked_items=checked,
        basis="checked" if checked and workload.items <= checked[-1] else "extrapolated",
    )
