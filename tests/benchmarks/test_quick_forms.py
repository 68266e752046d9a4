"""Commands run on a few photos, and their figures fit together."""

from __future__ import annotations

import importlib.util
import json
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from PIL import Image

from aladin_index.building.builder import build_index
from aladin_network.types import NullProgress, Progress
from aladin_service.demo.run import draw_demo
from aladin_service.item_sources import image_items, text_items
from benchmarks.search import searches
from benchmarks.search.searches import Effort
from tests.benchmarks.conftest import RunBenchmark

ROOT = Path(__file__).parents[2]


def test_engines_are_measured_on_the_same_photos(run_benchmark: RunBenchmark) -> None:
    figures = run_benchmark("engines.comparison", "--quick", _ONE_THREAD={}, _QUICK_ITEMS=300)
    measured = {name: line for name, line in figures["engines"].items() if line is not None}
    assert measured.keys() >= {"aladin", "faiss", "faiss_numpy"}
    for name, line in measured.items():
        assert line["ann_recall"] >= 0.99
        assert name == "faiss" or line["top_10"] >= 0.95
        for part in (line, line["filtered"]):
            assert 0 < part["p50_ms"] <= part["p95_ms"]
    assert measured["aladin"]["filtered"]["top_10"] == 1.0
    # A photo's 256 float32 values, and its 49 tokens of 128: float32, or int8 with a scale.
    sizes = {name: line["disk_bytes"] / 300 for name, line in measured.items()}
    assert 4 * 256 < sizes["faiss"] < min(sizes["aladin"], sizes["faiss_numpy"])
    assert sizes["aladin"] > 4 * 256 + 49 * (128 + 4)
    assert sizes["faiss_numpy"] > 4 * 256 + 49 * 4 * 128


def test_kinds_of_first_stages_are_calibrated_and_measured(run_benchmark: RunBenchmark) -> None:
    factories = ["Flat", "IVF8,PQ64x4fs", "HNSW16,Flat"]
    words = ["--quick", "--factories", ";".join(factories)]
    figures = run_benchmark("search.ann_factories", *words, _QUICK_ITEMS=400, _TIMED=20)
    assert (figures["items"], figures["candidates"]) == (400, 100)
    flat, lists, graph = figures["factories"]
    assert [each["factory"] for each in (flat, lists, graph)] == factories
    assert (flat["search_width"], flat["oversample"], flat["ann_recall"]) == (None, 1.0, 1.0)
    assert flat["file_bytes"] > 400 * 1024 > 3 * lists["file_bytes"]
    assert lists["ann_recall"] > 0.95 and lists["oversample"] > 1 and graph["search_width"] >= 64
    for line in figures["factories"]:
        assert 0 < line["search_ms"] <= line["search_p95_ms"]


def test_an_index_is_built_and_searched_and_kept(
    run_benchmark: RunBenchmark,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    effort = Effort(
        searches=5, recall_queries=10, fidelity_queries=10, exhaustive_runs=1, throughput_s=0.05
    )
    words = ["--quick", "--keep", str(tmp_path), "--regions", "17"]
    figures = run_benchmark("search.scale", *words, QUICK_ITEMS=300, _QUICK=effort)
    assert (figures["items"], figures["ann"], figures["ann_recall"]) == (300, "Flat", 1.0)
    assert 0.9 <= figures["fidelity"] <= 1.0
    assert 0 < figures["p50_ms"] <= figures["p95_ms"]
    tokens = tmp_path / "index/generations/000001/images/tokens.npy"
    assert np.load(tokens, mmap_mode="r").shape == (300 * 17, 128)
    assert figures["disk_bytes"] > 300 * (17 * (128 + 4) + 256 * 4)
    assert 0 < figures["search_anonymous_bytes"] < figures["search_rss_bytes"]
    assert figures["rss_bytes"] == max(figures["build_rss_bytes"], figures["search_rss_bytes"])
    assert set(figures["build_s"]) == {"draw", "pack", "write", "ann"}
    # Not built again, and compared with exact and exhaustive search in parts.
    built = (tmp_path / "index/CURRENT").stat().st_mtime_ns
    monkeypatch.setattr(searches, "_SCORES", 4 * 300)
    again = run_benchmark("search.scale", *words, QUICK_ITEMS=300, _QUICK=effort)
    assert (tmp_path / "index/CURRENT").stat().st_mtime_ns == built
    same = ("build_s", "disk_bytes", "ann_recall", "candidates", "fidelity", "fidelity_curve")
    assert [again[name] for name in same] == [figures[name] for name in same]
    with pytest.raises(SystemExit):
        run_benchmark("search.scale", "--regions", "50")
    assert "--regions: expected 1 to 49, got 50" in capsys.readouterr().err


def test_late_interaction_is_timed_against_other_packages(run_benchmark: RunBenchmark) -> None:
    report = run_benchmark("search.rerank", "--quick")
    assert list(report["candidates"]) == ["100", "1000"]
    has_package = importlib.util.find_spec("maxsim_cpu") is not None
    for entry in report["candidates"].values():
        assert (entry["maxsim_cpu_ms"] is not None) == has_package
        others = [entry[f"{name}_ms"] for name in ("torch_bf16", "torch_f32", "numpy")]
        assert min(entry["ours_ms"], *others) > 0
        assert entry["ours_over_fastest"] >= round(entry["ours_ms"] / min(others), 3)


def test_names_are_asked_of_a_made_up_folder(
    run_benchmark: RunBenchmark, tiny_checkpoint: Path, tmp_path: Path
) -> None:
    report = run_benchmark("search.names", "--quick")
    assert (report["photos"], report["whole"]) == (300, 1.0)
    assert report["parts"] >= 0.95 and report["ratio"] > 0
    for number in range(3):
        Image.new("RGB", (30, 40), "red").save(tmp_path / f"{number}.png")
    lines = [{"image": f"{n}.png", "split": "test", "captions": ["a red dog"]} for n in range(3)]
    data = tmp_path / "data.jsonl"
    data.write_text("\n".join(map(json.dumps, lines)), encoding="utf-8")
    given = ["--captions", str(data), "--model", str(tiny_checkpoint)]
    report = run_benchmark("search.names", *given)
    assert (report["captions"], report["names, default"]) == (3, report["names, 0.0"])


def test_short_queries_are_asked_of_a_demo(
    run_benchmark: RunBenchmark, tiny_checkpoint: Path
) -> None:
    recalls = (50.0, 90.0, 100.0)
    metrics = SimpleNamespace(text_to_image=recalls, image_to_text=recalls, rsum=480.0)

    def untrained(demo: Path, progress: Progress, *, scenes: int, **_: Any) -> Any:
        data = draw_demo(demo, scenes, progress)
        build_index(tiny_checkpoint, demo / "index", image_items(data, "test"), None)
        row = SimpleNamespace(name="two-stage", metrics=metrics, ms_a_query=0.5)
        return SimpleNamespace(rows=[row])

    words = ["--quick", "--captions", "0"]
    (report,) = run_benchmark(
        "search.short_queries", *words, run_demo=untrained, _QUICK_SCENES=40, _LEAST_RIGHT=1
    )
    assert report["foreign"]["queries"] == 128
    assert report["foreign"]["reranked"] == {"p_at_1": 0.0, "p_at_5": 0.0}
    assert (report["caption"], report["foreign"]["judged"]) == ({"queries": 0}, 0.0)
    assert report["searches"]["two-stage"]["text to image"]["R@5"] == 90.0
    assert set(report["showcase"]) == {"right", "misplaced"}


def test_a_build_is_timed_beside_its_networks(
    run_benchmark: RunBenchmark,
    exported_checkpoint: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.delenv("ALADIN_RUNTIME", raising=False)
    lines: list[str] = []
    for number in range(5):
        Image.new("RGB", (30 + number, 40), "red").save(tmp_path / f"{number}.png")
        captions = ["two dogs", "a dog " * (number + 1)]
        lines.append(json.dumps({"image": f"{number}.png", "captions": captions}))
    (tmp_path / "data.jsonl").write_text("\n".join(lines), encoding="utf-8")
    for source, items in (("data.jsonl", ["images", "texts"]), ("", ["images"])):
        words = ["--rounds", "1", "--seconds", "0", "--cores", "1"]
        given = [str(exported_checkpoint), str(tmp_path / source), *words]
        [report] = run_benchmark("index.build_speed", *given)
        assert [speed["items"] for speed in report["speeds"]] == items
        for speed in report["speeds"]:
            assert set(speed["engines"]) == {"onnxruntime", "torch"}
            assert speed["ratio"] == pytest.approx(speed["build"] / max(speed["engines"].values()))
        steps = report["steps_ms"]
        assert steps["encode"] > steps["read"] > 0


def test_killed_builds_and_writers_lose_nothing(tmp_path: Path) -> None:
    """In a process without threads, from which the killed ones are forked."""
    program = (
        "import dataclasses, json, pathlib, sys\n"
        "from benchmarks.index import kill_resume, live_updates\n"
        "builds = kill_resume.measure(2, 6, 0)\n"
        "writers = live_updates.kill_writers(pathlib.Path(sys.argv[1], 'index'), 2, 0)\n"
        "print(json.dumps([vars(builds), dataclasses.asdict(writers)]))\n"
    )
    command = [sys.executable, "-c", program, str(tmp_path)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
    builds, writers = json.loads(done.stdout)
    assert builds["kills"] == builds["identical"] == sum(builds["killed_while"].values()) == 2
    assert builds["reads"] > builds["builds"] >= 1
    assert builds["broken_reads"] == 0, builds["breaks"]
    assert writers["kills"] == sum(writers["in_flight"].values()) == 2
    assert writers["acknowledged"] > 0 and writers["searches"] > 0
    for fault in ("acknowledged_lost", "unacknowledged_found", "broken_searches"):
        assert writers[fault] == 0, fault


def test_weights_are_printed_and_drawn(
    run_benchmark: RunBenchmark, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    found = run_benchmark("training.goal_weights")
    assert {"p": 0.25, "q": 0.5, "pull": 1.0, "push": 1.0} in found["con"]
    from benchmarks.training import goal_weights

    file = tmp_path / "weights.png"
    monkeypatch.setattr("sys.argv", ["goal_weights", "--out", str(file), "--steps", "6"])
    goal_weights.main()
    assert file.read_bytes().startswith(b"\x89PNG")


@pytest.mark.clients
@pytest.mark.filterwarnings("ignore")
def test_mtebs_hit_rates_are_the_recalls_of_evaluate(tiny_checkpoint: Path, tmp_path: Path) -> None:
    from aladin_service.measure.evaluate import evaluate_system
    from benchmarks.search.mteb_recalls import measure

    captions = [
        [f"a {colour} {thing}", f"the {thing} is {colour}"]
        for colour in ("red", "blue", "green", "yellow")
        for thing in ("dog", "star", "square")
    ]
    lines: list[str] = []
    for number, each in enumerate([*captions, []]):
        pixels = np.random.default_rng(number).integers(0, 256, (40, 50, 3), dtype=np.uint8)
        Image.fromarray(pixels).save(tmp_path / f"{number}.png")
        lines.append(json.dumps({"image": f"{number}.png", "captions": each, "split": "test"}))
    data, index = tmp_path / "captions.jsonl", tmp_path / "index"
    data.write_text("\n".join(lines))
    build_index(tiny_checkpoint, index, image_items(data, None), text_items(data, None))
    rates = measure(index, data, "test")
    recalls = evaluate_system(tiny_checkpoint, data, "test", index, NullProgress()).metrics
    for direction in ("text_to_image", "image_to_text"):
        expected = getattr(recalls["two_stage"], direction)
        assert rates[direction] == pytest.approx(list(expected[:3]), abs=0.01)
    assert 0 < rates["text_to_image"][1] < rates["text_to_image"][2] < 100


def test_more_folds_and_runs_make_intervals_narrower(run_benchmark: RunBenchmark) -> None:
    figures = run_benchmark("training.half_widths", "--experiments", "4")
    assert [(each["folds"], each["runs"]) for each in figures] == [(1, 3), (7, 1), (7, 2)]
    for few, more, most in zip(*(each["widths"] for each in figures), strict=True):
        assert few[0] > more[0] > most[0] > 0
        assert all(smallest > half for half, smallest in (few, more, most))
