"""The quick form of the scale benchmark: the whole path in two fresh processes."""

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from aladin_index.ann import faiss
from aladin_index.ann.ann_index import AnnIndex
from aladin_index.format.manifest import AnnEntry
from benchmarks.lib.measuring import ratio, time_in_turn
from benchmarks.search.searches import raw_parameters

ROOT = Path(__file__).parents[3]


def test_quick_prints_what_was_measured(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "benchmarks.search.scale", "--quick", "--json"]
    done = subprocess.run(
        [*command, "--keep", str(tmp_path)], cwd=ROOT, capture_output=True, text=True, check=True
    )
    figures = json.loads(done.stdout)
    assert figures["items"] == 2000
    assert figures["ann"] == "Flat"
    assert figures["ann_recall"] == 1.0
    assert 0.95 <= figures["fidelity"] <= 1.0
    assert figures["fidelity_curve"][str(figures["candidates"])] >= 0.99
    assert 0 < figures["p50_ms"] <= figures["p95_ms"]
    # 2,000 photos of 49 int8 tokens with a scale each, and of 256 float32 values.
    assert figures["disk_bytes"] > 2000 * (49 * (128 + 4) + 256 * 4)
    assert figures["rss_bytes"] == max(figures["build_rss_bytes"], figures["search_rss_bytes"])
    assert 50 * 2**20 < figures["search_rss_bytes"] < 8 * 2**30
    assert figures["retrieve_over_faiss"] > 0.5
    assert figures["exhaustive_over_two_stage"] > 1
    assert set(figures["queries_per_s"]) == {"1", "2"}
    assert set(figures["build_s"]) == {"draw", "pack", "write", "ann"}
    assert (tmp_path / "index" / "CURRENT").exists()


@pytest.mark.parametrize(
    ("factory", "width"),
    [("Flat", None), ("IVF7,PQ4x4fs", 5), ("IVF7,SQ8", 3), ("HNSW8,Flat", 120)],
)
def test_faiss_is_asked_as_the_index_asks_it(factory: str, width: int | None) -> None:
    vectors = np.random.default_rng(0).standard_normal((700, 8)).astype(np.float32)
    raw = faiss.index_factory(8, factory, faiss.METRIC_INNER_PRODUCT)
    raw.train(vectors)
    raw.add(vectors)
    entry = AnnEntry(factory=factory, search_width=width, recall=1, recall_at=1, recall_queries=1)
    parameters = raw_parameters(raw, entry, 100)
    for query in vectors[:20]:
        _, rows = raw.search(query[None], 100, params=parameters)
        assert set(rows[0]) == set(AnnIndex(raw, width).search(query, 100))


def test_times_are_taken_in_turn() -> None:
    calls: list[tuple[str, int]] = []
    runs = {name: lambda turn, name=name: calls.append((name, turn)) for name in ("a", "b")}
    times = time_in_turn(runs, repetitions=2, warm_up=1)
    assert calls == [("a", -1), ("b", -1), ("a", 0), ("b", 0), ("a", 1), ("b", 1)]
    assert {name: len(each) for name, each in times.items()} == {"a": 2, "b": 2}
    assert ratio({"a": np.array([1.0, 3, 9]), "b": np.array([2.0])}, "a", "b") == 1.5
