"""The measurements of a card in their tiny form on the processor, and what a bad step leaves."""

import json
import os
import signal
import time
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest

from benchmarks.card import main, run_tests
from benchmarks.lib.measuring import one_thread
from benchmarks.lib.steps import Report, Setup, SkippedError, Step, run_steps


def in_this_process(step: Step, setup: Setup, result: dict[str, Any], _keep: object) -> None:
    """Run a step whose process would import all that this one has imported."""
    module, _, function = step.task.partition(":")
    try:
        getattr(import_module(module), function)(setup, result["figures"].__setitem__)
        result["status"] = "done"
    except SkippedError as reason:
        result |= {"status": "skipped", "reason": str(reason)}


def test_the_tiny_form_measures_every_step_on_the_processor(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    collected: list[list[str]] = []

    def collect(files: list[str], _: float, *, only_collect: bool) -> dict[str, int]:
        assert only_collect
        collected.append([Path(file).name for file in files])
        return {"exit_status": 0}

    monkeypatch.setattr("torch.cuda.is_available", lambda: False)
    monkeypatch.setattr("benchmarks.lib.steps._run", in_this_process)
    monkeypatch.setattr("benchmarks.card.run_tests", collect)
    # It starts a service, for half a minute: see `service/test_quick_forms.py`.
    monkeypatch.setattr("benchmarks.service.card_http.minilm", lambda setup, report: None)  # noqa: ARG005
    out = tmp_path / "card.json"
    with one_thread():
        assert main(["--out", str(out), "--quick"]) == 0
    assert any("test_devices.py" in files for files in collected)
    steps = json.loads(out.read_text(encoding="utf-8"))["steps"]
    statuses = {name: step["status"] for name, step in steps.items()}
    done = ["environment", "photos", "faiss", "torch", "exhaustive", "ten_million", "stages_1000"]
    measured = dict.fromkeys([*done, "encoding", "http_minilm"], "done")
    assert statuses == measured | {"tests": "skipped"}
    assert steps["environment"]["figures"]["card"] is None
    assert "no CUDA device" in steps["tests"]["reason"]
    flat = steps["faiss"]["figures"]["flat"]
    lists = steps["faiss"]["figures"]["inverted lists, 8 bits"]["widths"]
    exact = steps["torch"]["figures"]["flat, single precision"]
    assert flat["recall_at_10"] > 0.99 and exact["recall_at_100"] == 1
    assert lists["8"]["recall_at_100"] < lists["128"]["recall_at_100"]
    for figures in (flat, lists["8"], exact):
        assert list(figures["batches"]) == ["1", "16", "64", "256"]
        for size, times in figures["batches"].items():
            assert 0 < times["p10_ms"] <= times["p50_ms"]
            assert times["queries_per_s"] == pytest.approx(1000 * int(size) / times["p50_ms"])
    for engine in ("processor", "card", "card, torch"):
        stages = steps["stages_1000"]["figures"][engine]
        assert stages["ann_recall"] == stages["same_hits"] == 1
        assert stages["retrieve"]["p50_ms"] < stages["search"]["p50_ms"]
        assert list(stages["exhaustive"]) == ["1", "16"]
    many = steps["ten_million"]["figures"]
    assert many["16 lists"]["recall"] <= many["256 lists"]["recall"] > 0.9
    scans = steps["exhaustive"]["figures"]
    for regions in (17, 49):
        for form in ("float16", "int8", "4bit"):
            assert scans[f"{regions} regions, {form}"]["scan of 16"]["queries_per_s"] > 0
    encoding = steps["encoding"]["figures"]
    assert list(encoding["decoding"]) == ["threads", "processes"]
    network = encoding["network"]["half, 2 photos, 1 callers"]
    build = encoding["build"]["photos_per_s"]
    limit = min(encoding["decoding"]["processes"], network)
    assert encoding["ratio"] == pytest.approx(build / limit)


def test_steps_are_chosen_by_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("benchmarks.lib.steps._run", in_this_process)
    out = tmp_path / "card.json"
    assert main(["--out", str(out), "--quick", "--only", "photos", "environment"]) == 0
    assert list(json.loads(out.read_text(encoding="utf-8"))["steps"]) == ["environment", "photos"]
    with pytest.raises(SystemExit):
        main(["--out", str(out), "--quick", "--only", "foto"])
    assert "expected some of environment, tests, photos" in capsys.readouterr().err


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
    assert [(name, step["status"], step["figures"]) for name, step in found.items()] == [
        ("missing", "failed", {}),
        ("cannot_run", "skipped", {}),
        ("fails", "failed", {"before": 1}),
        ("crashes", "failed", {"before": 2}),
        ("hangs", "cut", {"before": 3}),
        ("tells_and_ends", "done", {"items": 7}),
    ]
    for name, reason in (
        ("missing", "no_such_module"),
        ("cannot_run", "there is no card"),
        ("fails", "ValueError: a wrong shape"),
        ("crashes", "SIGSEGV"),
    ):
        assert reason in found[name]["reason"]


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
    assert outcomes.pop("test_bad").startswith("failure: assert 1 == 2")
    assert outcomes == {"test_good": "passed"}
