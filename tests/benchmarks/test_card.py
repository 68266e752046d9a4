"""The script for a card, in its tiny form on the processor, and what a bad step leaves."""

import json
import os
import signal
import time
from pathlib import Path

import pytest

from benchmarks.card import main, run_tests
from benchmarks.lib.steps import Report, Setup, SkippedError, Step, run_steps


def test_the_tiny_form_measures_every_step_on_the_processor(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    out = tmp_path / "card.json"
    assert main(["--out", str(out), "--quick"]) == 0
    content = json.loads(out.read_text(encoding="utf-8"))
    steps = content["steps"]
    assert {name: step["status"] for name, step in steps.items()} == {
        "environment": "done",
        "tests": "skipped",
        "photos": "done",
        "faiss": "done",
        "torch": "done",
        "stages_1000": "done",
    }
    assert steps["environment"]["figures"]["card"] is None
    assert steps["environment"]["figures"]["faiss"]["supports_cards"] is False
    assert "no CUDA device" in steps["tests"]["reason"]
    assert "test_search_device.py::" in steps["tests"]["figures"]["pytest"]["output"]
    flat = steps["faiss"]["figures"]["flat, half precision"]["widths"]["1"]
    lists = steps["faiss"]["figures"]["inverted lists, 8 bits"]["widths"]
    exact = steps["torch"]["figures"]["flat, single precision"]
    assert flat["recall_at_10"] > 0.99
    assert lists["8"]["recall_at_100"] < lists["128"]["recall_at_100"]
    assert exact["recall_at_100"] == 1
    for figures in (flat, lists["8"], exact):
        assert list(figures["batches"]) == ["1", "16", "64", "256"]
        for size, times in figures["batches"].items():
            assert 0 < times["p10_ms"] <= times["p50_ms"]
            assert times["queries_per_s"] == pytest.approx(1000 * int(size) / times["p50_ms"])
    stages = steps["stages_1000"]["figures"]
    for engine in (stages["processor"], stages["torch on cpu"]):
        assert engine["ann_recall"] == engine["same_hits"] == 1
        assert engine["retrieve"]["p50_ms"] < engine["search"]["p50_ms"]
        assert list(engine["batches"]) == ["16", "64", "256"]


def tells_and_ends(setup: Setup, report: Report) -> None:
    report("items", setup.items)


def cannot_run(_setup: Setup, _report: Report) -> None:
    raise SkippedError("there is no card")


def fails(_setup: Setup, report: Report) -> None:
    report("before", 1)
    raise ValueError("a wrong shape")


def crashes(_setup: Setup, report: Report) -> None:
    report("before", 2)
    os.kill(os.getpid(), signal.SIGSEGV)


def hangs(_setup: Setup, report: Report) -> None:
    report("before", 3)
    time.sleep(600)


def test_a_bad_step_keeps_its_figures_and_a_reason_and_the_next_one_runs(tmp_path: Path) -> None:
    out = tmp_path / "steps.json"
    tasks = [cannot_run, fails, crashes, hangs, tells_and_ends]
    # The one that hangs has the least of the time, but enough to start.
    steps = [
        Step(task.__name__, f"{__name__}:{task.__name__}", 0.05 if task is hangs else 1.0, 7)
        for task in tasks
    ]
    steps.insert(0, Step("missing", "benchmarks.no_such_module:run", 1))
    run_steps(steps, out, tmp_path, 200, is_quick=True)
    found = json.loads(out.read_text(encoding="utf-8"))["steps"]
    assert list(found) == ["missing", *(task.__name__ for task in tasks)]
    assert found["missing"]["status"] == "failed"
    assert "no_such_module" in found["missing"]["reason"]
    assert found["cannot_run"] == found["cannot_run"] | {
        "status": "skipped",
        "reason": "there is no card",
    }
    assert found["fails"]["status"] == "failed"
    assert found["fails"]["reason"].endswith("ValueError: a wrong shape")
    assert found["crashes"]["reason"] == "its process ended: SIGSEGV"
    assert (found["hangs"]["status"], found["hangs"]["figures"]) == ("cut", {"before": 3})
    assert [found[name]["figures"] for name in ("fails", "crashes")] == [
        {"before": 1},
        {"before": 2},
    ]
    assert found["tells_and_ends"]["status"] == "done"
    assert found["tells_and_ends"]["figures"] == {"items": 7}


def test_tests_on_a_card_are_reported_one_by_one(tmp_path: Path) -> None:
    file = tmp_path / "test_drawn.py"
    file.write_text(
        "import pytest\n"
        "@pytest.mark.gpu\ndef test_good(): pass\n"
        "@pytest.mark.gpu\ndef test_bad(): assert 1 == 2\n"
        "def test_of_the_processor(): assert False\n",
        encoding="utf-8",
    )
    figures = run_tests([str(file)], 60)
    assert figures["exit_status"] == 1
    outcomes = {name.rpartition("::")[2]: told for name, told in figures["tests"].items()}
    assert outcomes["test_good"] == "passed"
    assert outcomes["test_bad"].startswith("failure: assert 1 == 2")
    assert set(outcomes) == {"test_good", "test_bad"}
