"""The comparison with other engines, on few photos and in this process."""

import json
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from benchmarks.engines import comparison as engines
from benchmarks.engines.task import Task, ann_recall, best_of, fastest
from benchmarks.lib.synthetic import TextQueries


@pytest.fixture
def in_this_process(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Photos from the stand-in, and no process to start, each of which takes seconds."""
    monkeypatch.setattr("benchmarks.lib.synthetic_sources.DEFAULT_SOURCE", tmp_path / "none")
    monkeypatch.setattr(engines, "in_fresh_process", lambda task, *arguments: task(*arguments))
    monkeypatch.setattr(engines, "_ONE_THREAD", {})


def run(arguments: list[str], capsys: pytest.CaptureFixture[str], monkeypatch: Any) -> str:
    monkeypatch.setattr(sys, "argv", ["engines", "--quick", *arguments])
    engines.main()
    return capsys.readouterr().out


@pytest.mark.usefixtures("in_this_process")
def test_quick_measures_every_engine_that_is_installed(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    printed = run(["--json"], capsys, monkeypatch)
    figures = json.loads(printed)
    assert figures["items"] == 1000
    assert list(figures["engines"]) == list(engines.ENGINES)
    measured = {name: line for name, line in figures["engines"].items() if line is not None}
    assert measured.keys() >= {"aladin", "faiss", "faiss_numpy"}
    for line in measured.values():
        assert line["ann_recall"] >= 0.99
        for part in (line, line["filtered"]):
            assert 0 < part["p50_ms"] <= part["p95_ms"]
            assert part["queries_per_s"] > 0
        assert line["build_s"] > 0
    for name in measured.keys() - {"faiss"}:
        assert measured[name]["top_10"] >= 0.95
    assert measured["faiss_numpy"]["top_10"] == pytest.approx(1, abs=0.01)
    assert measured["aladin"]["filtered"]["top_10"] == 1.0
    # A photo's 256 float32 values, and its 49 tokens of 128: float32, or int8 with a scale.
    sizes = {name: line["disk_bytes"] / 1000 for name, line in measured.items()}
    assert 4 * 256 < sizes["faiss"] < 2 * 4 * 256
    assert 4 * 256 + 49 * (128 + 4) < sizes["aladin"] < sizes["faiss_numpy"]
    assert 4 * 256 + 49 * 4 * 128 < sizes["faiss_numpy"] < 3 * 4 * 256 + 49 * 4 * 128


@pytest.mark.usefixtures("in_this_process")
def test_what_is_not_installed_is_skipped(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    def missing() -> Any:
        raise ImportError

    monkeypatch.setattr(engines, "load_qdrant", missing)
    made = {"build_s": 1.0}
    monkeypatch.setattr(engines, "build_aladin", lambda *_: dict(made))
    monkeypatch.setattr(engines, "build_faiss", lambda *_: dict(made))
    (tmp_path / "tokens.npy").write_bytes(b"12345")
    built = engines.build_all(tmp_path, tmp_path, 10, None)
    assert list(built) == ["aladin", "faiss", "faiss_numpy"]
    assert built["faiss_numpy"] == {"build_s": 1.0, "disk_bytes": 5}
    assert "not installed" in capsys.readouterr().err


def test_the_table_has_a_line_an_engine(capsys: pytest.CaptureFixture[str]) -> None:
    part = {"p50_ms": 1.234, "p95_ms": 2.0, "queries_per_s": 800.0, "top_10": 0.98765}
    line = {
        "settings": "Flat",
        "ann_recall": 0.995,
        "build_s": 3.0,
        "disk_bytes": 5e6,
        "rss_bytes": 7e6,
        **part,
        "filtered": part,
    }
    lines = {"aladin": line, "qdrant": None}
    engines.print_table({"items": 10, "queries": 5, "source": "a", "engines": lines})
    printed = capsys.readouterr().out.splitlines()
    cells = [cell.strip() for cell in printed[-2].strip("|").split("|")]
    timed = ["1.23", "2.00", "800", "0.988"]
    assert cells == ["aladin", "Flat", "0.995", *timed, *timed, "3.0", "5", "7"]
    assert printed[-1].count("|") == printed[-2].count("|") == printed[2].count("|")


def small_task() -> Task:
    random = np.random.default_rng(0)
    embeddings = random.standard_normal((300, 8)).astype(np.float32)
    queries = random.standard_normal((20, 8)).astype(np.float32)
    nearest = [np.argsort(-(embeddings @ query))[:100] for query in queries]
    texts = TextQueries(queries, [], np.zeros(20, dtype=np.int64))
    return Task(embeddings, np.empty((0, 0, 0)), texts, 20, [], nearest, [], [])


def test_recall_is_the_share_of_the_nearest() -> None:
    task = small_task()
    found = iter(task.nearest)
    assert ann_recall(task, lambda _: next(found)[:50]) == 0.5


def test_the_fastest_way_that_finds_enough_is_taken() -> None:
    task = small_task()

    def find(work: int, query: np.ndarray) -> np.ndarray:
        for _ in range(work):
            scores = task.embeddings @ query
        # With little work, every other one.
        return np.argsort(-scores)[: 100 if work > 2 else 200 : 1 if work > 2 else 2]

    assert fastest(task, [400, 2, 40], find) == 40


def test_late_interaction_is_that_of_loops() -> None:
    random = np.random.default_rng(0)
    tokens = random.standard_normal((30, 5, 4)).astype(np.float32)
    words = random.standard_normal((3, 4)).astype(np.float32)
    rows = np.array([4, 29, 7, 11, 0, 3, 18, 22, 9, 15, 16, 28])
    scores = {
        row: sum(max(float(word @ token) for token in tokens[row]) for word in words)
        for row in rows.tolist()
    }
    expected = sorted(scores, key=lambda row: -scores[row])[:10]
    assert best_of(words, rows, tokens).tolist() == expected
    assert best_of(words, rows[:0], tokens).tolist() == []
