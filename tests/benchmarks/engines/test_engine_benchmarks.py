"""The benchmarks of Milvus in their quick forms, against the real server."""

from __future__ import annotations

from benchmarks.engines.engine_kills import kill_engine_and_replicas
from tests.milvus_needed import STARTS_MILVUS

pytestmark = STARTS_MILVUS


def test_kills_of_the_engine_and_of_a_replica_lose_nothing() -> None:
    figures = kill_engine_and_replicas(kills=2, replicas=2)
    assert figures["correct"] > 0
    assert figures["acknowledged"] > 0
    faults = ("wrong", "failed", "lost", "not_recovered")
    found = {name: figures[name] for name in faults}
    assert found == dict.fromkeys(faults, 0), figures["unexpected"]
