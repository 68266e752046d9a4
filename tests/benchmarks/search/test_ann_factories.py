"""The quick form of the comparison of FAISS indexes."""

import json
import sys

import pytest

from benchmarks.search import ann_factories


def test_quick_prints_what_was_measured(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    options = ["--factories", "Flat;IVF32,PQ256x4fs;HNSW16,Flat"]
    monkeypatch.setattr(sys, "argv", ["ann_factories", "--quick", "--json", *options])
    ann_factories.main()
    figures = json.loads(capsys.readouterr().out)
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
