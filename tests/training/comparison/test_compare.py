"""Real runs of two small recipes: trained, evaluated, resumed, refused."""

from __future__ import annotations

import dataclasses
import logging
from collections.abc import Callable
from pathlib import Path

import pytest

from aladin_network.checkpoint import load_checkpoint
from aladin_network.errors import InputError
from aladin_network.scoring.hub_correction import CORRECTION
from aladin_network.types import NullProgress
from aladin_training.comparison.compare import compare, perform_all
from aladin_training.comparison.evaluate import check_queries
from aladin_training.comparison.evaluation import is_trained, load_evaluation
from aladin_training.comparison.plan import ComparisonPlan
from aladin_training.comparison.summary import summarize_plan
from aladin_training.config.recipe import Recipe
from aladin_training.data import read_records
from aladin_training.evaluation import evaluate_checkpoint


class InterruptionError(BaseException):
    """Stands for an interruption at the keyboard."""


class Interrupt(NullProgress):
    """Interrupts after some states of runs."""

    def __init__(self, states: int) -> None:
        self.states = states

    def advance(self, count: int = 1) -> None:  # noqa: ARG002
        """Count states down."""
        self.states -= 1
        if self.states < 0:
            raise InterruptionError


@pytest.fixture(scope="module")
def tiny_plan(
    variant: Callable[..., Recipe], tmp_path_factory: pytest.TempPathFactory
) -> ComparisonPlan:
    """Two recipes that begin with the same stage, two seeds."""
    short = ("stage.joint.epochs=1", "stage.student.epochs=1")
    recipes = (variant("base", *short), variant("faster", *short, "stage.student.lr=0.01"))
    return ComparisonPlan(
        recipes, "base", (0, 1), "val", tmp_path_factory.mktemp("comparison") / "out"
    )


@pytest.fixture(scope="module")
def compared(tiny_plan: ComparisonPlan) -> ComparisonPlan:
    result = compare(tiny_plan)
    assert result.failures == {}
    return tiny_plan


def test_every_run_is_trained_evaluated_and_reported(compared: ComparisonPlan) -> None:
    comparison = summarize_plan(compared, {}, {})
    assert [len(summary.runs) for summary in comparison.summaries] == [2, 2]
    assert comparison.summaries[1].difference is not None
    assert "| faster | matching |" in (compared.out / "report.md").read_text()
    assert (compared.out / "report.html").exists()


def test_the_shared_start_is_trained_once(compared: ComparisonPlan) -> None:
    """Two seeds of one start, and of two ends: six stages in all."""
    stages = [path for path in (compared.out / "stages").iterdir() if path.is_dir()]
    assert len(stages) == 6
    starts = [
        compared.run(recipe, 0).folder / "stages" / "joint" / "checkpoint" / "model.safetensors"
        for recipe in compared.recipes
    ]
    assert starts[0].read_bytes() == starts[1].read_bytes()


def test_a_stored_evaluation_is_that_of_the_served_network(compared: ComparisonPlan) -> None:
    run = compared.runs()[1]
    stored = load_evaluation(run.folder, "val")
    assert stored is not None
    records = read_records(Path(run.recipe.data.source), "val")
    served = evaluate_checkpoint(load_checkpoint(run.folder / "checkpoint"), records)
    # Features of frozen encoders pass through the cache in half precision.
    metrics = stored.metrics()
    # So few items are all candidates: the alignment alone orders every one of them.
    assert metrics.pop("two_stage_alignment") == metrics["alignment"]
    assert metrics == served.metrics()
    assert stored.mean_difference == pytest.approx(served.mean_difference, abs=1e-3)


def test_a_second_call_only_writes_the_report(compared: ComparisonPlan) -> None:
    runs = {file: file.stat().st_mtime_ns for file in (compared.out / "runs").rglob("*.*")}
    report = compared.out / "report.md"
    before = report.read_text()
    report.unlink()
    compare(compared)
    assert report.read_text() == before
    assert runs == {file: file.stat().st_mtime_ns for file in (compared.out / "runs").rglob("*.*")}


def test_changed_captions_are_refused(compared: ComparisonPlan) -> None:
    report = compared.out / "report.md"
    source, before = Path(compared.recipes[0].data.source), report.read_text()
    texts = source.read_text(encoding="utf-8")
    changed = texts.replace("black paint", "black ink")
    assert changed != texts
    source.write_text(changed, encoding="utf-8")
    try:
        with pytest.raises(InputError, match="evaluated on other photos or captions than split 'v"):
            compare(compared)
        compare(compared, train=False)  # the runs are reported as they are
        assert report.read_text() == before
        source.unlink()
        check_queries(compared.runs(), compared.split)  # nothing to compare with
    finally:
        source.write_text(texts, encoding="utf-8")
    compare(compared)


def test_another_split_is_evaluated_without_training(compared: ComparisonPlan) -> None:
    other = dataclasses.replace(compared, split="train", seeds=(1,), recipes=compared.recipes[:1])
    weights = other.runs()[0].folder / "checkpoint" / "model.safetensors"
    before = weights.stat().st_mtime_ns
    assert perform_all(other.runs(), other.split, other.shared_stages, 1) == {}
    evaluation = load_evaluation(other.runs()[0].folder, "train")
    assert evaluation is not None
    assert evaluation.image_of_text.max() == 11
    assert weights.stat().st_mtime_ns == before
    # Back on the comparison's own split:
    assert perform_all(compared.runs(), "val", compared.shared_stages, 1) == {}


def test_a_split_that_the_data_lack_ends_a_run_before_its_training(
    compared: ComparisonPlan, tmp_path: Path
) -> None:
    plan = dataclasses.replace(compared, out=tmp_path / "out", seeds=(0,))
    failures = perform_all(plan.runs(), "dev", plan.shared_stages, 1)
    assert failures.keys() == {run.label for run in plan.runs()}
    assert all("has no split 'dev'" in reason for reason in failures.values())
    assert not any(run.folder.exists() for run in plan.runs())


def test_an_interrupted_comparison_ends_alike(
    compared: ComparisonPlan, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("aladin_training.comparison.processes._REPORT_EVERY_S", 0.0)
    monkeypatch.setattr("aladin_training.loop.SAVE_EVERY_S", 0.0)
    plan = dataclasses.replace(compared, out=tmp_path / "out", seeds=(0,))
    with pytest.raises(InterruptionError):
        perform_all(plan.runs(), "val", plan.shared_stages, 1, Interrupt(7))
    assert not any(is_trained(run) for run in plan.runs())
    assert perform_all(plan.runs(), "val", plan.shared_stages, 1) == {}
    (plan.runs()[0].folder / "checkpoint" / "config.json").unlink()
    assert perform_all(plan.runs(), "val", plan.shared_stages, 1) == {}
    for ours, theirs in zip(plan.runs(), compared.runs()[:2], strict=True):
        evaluations = [load_evaluation(run.folder, "val") for run in (ours, theirs)]
        assert evaluations[0] is not None
        assert evaluations[1] is not None
        assert evaluations[0].model_id == evaluations[1].model_id


def test_a_failing_run_does_not_end_the_others(
    compared: ComparisonPlan, variant: Callable[..., Recipe], caplog: pytest.LogCaptureFixture
) -> None:
    changed = dataclasses.replace(compared.recipes[0], precision="bfloat16")
    broken = variant("broken", "stage.student.lr=1e30", "stage.student.clip_norm=1e30")
    missing = variant("missing", "data.source=gone.jsonl")
    last = variant("last", "stage.joint.epochs=1", "stage.student.epochs=1")
    plan = dataclasses.replace(compared, recipes=(changed, broken, missing, last), seeds=(0,))
    with caplog.at_level(logging.ERROR):
        result = compare(plan)
    assert result.failures.keys() == {"base seed 0", "broken seed 0", "missing seed 0"}
    assert "another recipe" in result.failures["base seed 0"]
    assert "not a finite number" in result.failures["broken seed 0"]
    assert "gone.jsonl" in result.failures["missing seed 0"]
    assert is_trained(plan.runs()[3])
    assert "run 2 of 4, broken seed 0: failed: stage 'student'" in caplog.text
    report = result.markdown.read_text()
    assert "| broken | matching | - | - |" in report
    assert "0 of 1, 1 failed" in report
    assert "broken seed 0: failed: stage 'student', step" in report


def test_corrections_are_fitted_once_and_reported(
    compared: ComparisonPlan, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("aladin_training.correction._LEAST", 1)
    monkeypatch.setattr("aladin_training.correction._SHARE", 0.5)
    assert compare(compared, step_times=False, correct=True).failures == {}
    for run in compared.runs():
        stored = load_evaluation(run.folder, "val")
        assert stored is not None
        assert "corrected_fused" in stored.ranks
        assert (run.folder / "checkpoint" / CORRECTION).exists()
    report = (compared.out / "report.md").read_text()
    assert "## Hubness correction" in report
    monkeypatch.setattr("aladin_training.comparison.evaluate.fit_to_records", None)
    assert compare(compared, step_times=False, correct=True).failures == {}
