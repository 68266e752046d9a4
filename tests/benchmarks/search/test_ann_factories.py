"""The quick form of the comparison of FAISS indexes."""

import json
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[3]


def test_quick_prints_what_was_measured() -> None:
    command = [sys.executable, "-m", "benchmarks.search.ann_factories", "--quick", "--json"]
    options = ["--factories", "Flat;IVF32,PQ256x4fs;HNSW16,Flat"]
    done = subprocess.run(
        [*command, *options], cwd=ROOT, capture_output=True, text=True, check=True
    )
    figures = json.loads(done.stdout)
    assert (figures["items"], figures["candidates"]) == (3000, 100)
    flat, lists, graph = figures["factories"]
    assert [each["factory"] for each in (flat, lists, graph)] == options[1].split(";")
    assert flat["ann_recall"] == 1.0
    assert (flat["search_width"], flat["oversample"]) == (None, 1.0)
    assert flat["file_bytes"] > 3000 * 1024 > 3 * lists["file_bytes"]
    # Calibrated to 0.99 on other captions.
    assert lists["ann_recall"] > 0.95
    assert lists["oversample"] > 1
    assert graph["search_width"] >= 64
    for line in (flat, lists, graph):
        assert 0 < line["search_ms"] <= line["search_p95_ms"]
        assert 0.3 < line["over_faiss"] < 5
