"""The report: what it runs, what it writes, and that one failure does not end it."""

import json
import subprocess
from pathlib import Path
from typing import Any

import pytest
from PIL import Image

from benchmarks.search import report
from benchmarks.search.report import (
    Section,
    draw_recall,
    draw_scale,
    run_all,
    sections,
    write_report,
)


def scale_figures(items: int) -> dict[str, Any]:
    return {
        "items": items,
        "p50_ms": 1.0,
        "p95_ms": 2.0,
        "retrieve_p50_ms": 0.5,
        "rerank_p50_ms": 0.4,
        "exhaustive_ms": items / 1000,
        "build_rss_bytes": 2**30,
        "search_rss_bytes": 2**29,
        "disk_bytes": items * 8000,
        "build_s": {"write": items / 1e4, "ann": items / 1e5},
    }


def test_every_number_of_photos_is_measured_and_other_engines_up_to_their_limit() -> None:
    lines = [(each.module, *each.arguments) for each in sections([10_000, 1_000_000])]
    assert lines == [
        ("search.scale", "--items", "10000"),
        ("search.scale", "--items", "1000000"),
        ("search.ann_factories", "--items", "10000"),
        ("search.ann_factories", "--items", "1000000"),
        ("search.rerank",),
        ("engines.comparison", "--items", "10000"),
    ]


def test_a_command_that_fails_is_named_and_the_others_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def run(command: list[str], **_: object) -> subprocess.CompletedProcess[str]:
        assert command[1:4] == ["-m", "benchmarks.search.scale", "--json"]
        figures = scale_figures(int(command[5]))
        code = 1 if figures["items"] == 7 else 0
        return subprocess.CompletedProcess(command, code, "" if code else json.dumps(figures))

    monkeypatch.setattr(report.subprocess, "run", run)
    chosen = [Section(f"scale-{n}", "search.scale", ["--items", str(n)]) for n in (5, 7, 9)]
    results, failed = run_all(chosen, tmp_path / "out")
    assert failed == ["scale-7"]
    assert [each and each["items"] for each in results.values()] == [5, None, 9]
    assert json.loads((tmp_path / "out" / "scale-9.json").read_text()) == scale_figures(9)
    assert not (tmp_path / "out" / "scale-7.json").exists()
    write_report(chosen, results, tmp_path / "out")
    text = (tmp_path / "out" / "report.md").read_text()
    assert text.count("\np50_ms ") == 2
    assert "## `python -m benchmarks.search.scale --items 7`\n\nIt failed." in text


def test_plots_are_drawn(tmp_path: Path) -> None:
    draw_scale([scale_figures(10_000), scale_figures(1000)], tmp_path / "scale.png")
    curve = [{"search_ms": 0.1, "recall": 0.9}, {"search_ms": 1.0, "recall": 0.99}]
    factories = [{"factory": "Flat", "curve": curve}, {"factory": "HNSW32", "curve": curve}]
    draw_recall([{"items": 1000, "factories": factories}], tmp_path / "recall.png")
    for name, width in (("scale.png", 2160), ("recall.png", 720)):
        with Image.open(tmp_path / name) as image:
            assert image.size == (width, 540)
            assert len(image.convert("RGB").getcolors(2**24)) > 50


def test_nothing_measured_draws_nothing(tmp_path: Path) -> None:
    draw_scale([], tmp_path / "scale.png")
    draw_recall([], tmp_path / "recall.png")
    assert list(tmp_path.iterdir()) == []
