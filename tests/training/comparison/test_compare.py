"""Real runs of small recipes: trained, evaluated, resumed, chosen, refused."""

from __future__ import annotations

import dataclasses
import json
import logging
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

import pytest

from aladin_network.checkpoint import load_checkpoint
from aladin_network.config import dump_config
from aladin_network.errors import InputError
from aladin_network.scoring.hub_correction import CORRECTION
from aladin_network.types import NullProgress
from aladin_training.comparison import report
from aladin_training.comparison.budget import steps_of, training_sizes
from aladin_training.comparison.compare import (
    ComparisonResult,
    choose_settings,
    compare,
    perform_all,
)
from aladin_training.comparison.evaluate import check_queries
from aladin_training.comparison.evaluation import RunEvaluation, is_trained, load_evaluation
from aladin_training.comparison.grid import parse_grid
from aladin_training.comparison.pilot import run_pilot
from aladin_training.comparison.plan import (
    Choices,
    ComparisonPlan,
    PlannedRun,
    Reported,
    load_plan,
)
from aladin_training.config.recipe import Recipe
from aladin_training.data import Record, read_records
from aladin_training.data.records import records_digest
from aladin_training.data.selection import read_split
from aladin_training.evaluation import evaluate_checkpoint
from aladin_training.stage_files import read_facts

SHORT = ("stage.joint.epochs=1", "stage.student.epochs=1")


class InterruptionError(BaseException):
    """Stands for an interruption at the keyboard."""


class Interrupt(NullProgress):
    """Interrupts after some states of runs."""

    def __init__(self, states: int) -> None:
        self.states = states

    def advance(self, count: int = 1) -> None:  # noqa: ARG002
        self.states -= 1
        if self.states < 0:
            raise InterruptionError


@pytest.fixture(scope="module", autouse=True)
def _no_pictures() -> Iterator[None]:  # pyright: ignore[reportUnusedFunction]
    """Draw nothing: pictures take longer than the runs."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(report, "_PICTURES", [])
        yield


@pytest.fixture(scope="module")
def compared(
    variant: Callable[..., Recipe], tmp_path_factory: pytest.TempPathFactory
) -> ComparisonPlan:
    """Two recipes that begin with the same stage, compared with two seeds."""
    recipes = (variant("base", *SHORT), variant("faster", *SHORT, "stage.student.lr=0.01"))
    out = tmp_path_factory.mktemp("comparison") / "out"
    plan = ComparisonPlan(recipes, "base", (0, 1), "val", out)
    result = compare(plan)
    assert result.failures == {}
    assert [len(summary.runs) for summary in result.comparison.summaries] == [2, 2]
    assert result.comparison.summaries[1].difference is not None
    return plan


def read_split_of(plan: ComparisonPlan, seed: int, split: str) -> list[Record]:
    """Read a split as a checkpoint of the run with a seed names it."""
    recipe = plan.run(plan.recipes[0], seed).recipe
    return read_split(Path(recipe.data.source), split, json.dumps(dump_config(recipe)))


def evaluation_of(run: PlannedRun, split: str = "val") -> RunEvaluation:
    found = load_evaluation(run.folder, split)
    assert found is not None
    return found


def times_of(folder: Path, pattern: str = "*.*") -> Mapping[Path, int]:
    return {file: file.stat().st_mtime_ns for file in folder.rglob(pattern)}


def test_the_shared_start_is_trained_once_and_a_second_call_only_writes_the_report(
    compared: ComparisonPlan,
) -> None:
    """Two seeds of one start, and of two ends: six stages in all."""
    assert sum(path.is_dir() for path in (compared.out / "stages").iterdir()) == 6
    first, second = (
        compared.run(recipe, 0).folder / "stages" / "joint" / "checkpoint" / "model.safetensors"
        for recipe in compared.recipes
    )
    assert first.read_bytes() == second.read_bytes()
    before, markdown = times_of(compared.out / "runs"), compared.out / "report.md"
    text = markdown.read_text()
    markdown.unlink()
    compare(compared)
    assert (markdown.read_text(), times_of(compared.out / "runs")) == (text, before)


def test_a_stored_evaluation_is_that_of_the_served_network(compared: ComparisonPlan) -> None:
    run = compared.runs()[1]
    stored = evaluation_of(run)
    records = read_records(Path(run.recipe.data.source), "val")
    served = evaluate_checkpoint(load_checkpoint(run.folder / "checkpoint"), records)
    metrics = stored.metrics()
    # So few items are all candidates: the alignment alone orders every one of them.
    assert metrics.pop("two_stage_alignment") == metrics["alignment"]
    assert metrics == served.metrics()
    # Features of frozen encoders pass through the cache in half precision.
    assert stored.mean_difference == pytest.approx(served.mean_difference, abs=1e-3)


def test_changed_captions_are_refused(compared: ComparisonPlan) -> None:
    markdown = compared.out / "report.md"
    source, before = Path(compared.recipes[0].data.source), markdown.read_text()
    texts = source.read_text(encoding="utf-8")
    changed = texts.replace("black paint", "black ink")
    assert changed != texts
    source.write_text(changed, encoding="utf-8")
    try:
        with pytest.raises(InputError, match="evaluated on other photos or captions than split 'v"):
            compare(compared)
        compare(compared, train=False)  # the runs are reported as they are
        assert markdown.read_text() == before
        source.unlink()
        check_queries(compared.runs(), compared.split)  # nothing to compare with
    finally:
        source.write_text(texts, encoding="utf-8")


def test_another_split_is_evaluated_without_training(compared: ComparisonPlan) -> None:
    run = compared.runs()[2]
    before = times_of(run.folder, "model.safetensors")
    assert perform_all([run], "train", compared.shared_stages, 1) == {}
    assert evaluation_of(run, "train").image_of_text.max() == 11
    # Back on the comparison's own split:
    assert perform_all(compared.runs(), "val", compared.shared_stages, 1) == {}
    assert times_of(run.folder, "model.safetensors") == before


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
        assert evaluation_of(ours).model_id == evaluation_of(theirs).model_id


def test_a_failing_run_does_not_end_the_others(
    compared: ComparisonPlan, variant: Callable[..., Recipe], caplog: pytest.LogCaptureFixture
) -> None:
    recipes = (
        dataclasses.replace(compared.recipes[0], precision="bfloat16"),
        variant("broken", *SHORT, "stage.student.lr=1e30", "stage.student.clip_norm=1e30"),
        variant("missing", "data.source=gone.jsonl"),
        variant("last", *SHORT),
    )
    plan = dataclasses.replace(compared, recipes=recipes, seeds=(0,))
    with caplog.at_level(logging.ERROR):
        result = compare(plan, step_times=False)
    reasons = {
        "base seed 0": "another recipe",
        "broken seed 0": "not a finite number",
        "missing seed 0": "gone.jsonl",
    }
    assert result.failures.keys() == reasons.keys()
    assert all(reasons[label] in reason for label, reason in result.failures.items())
    assert is_trained(plan.runs()[3])
    assert "run 2 of 4, broken seed 0: failed: stage 'student'" in caplog.text


def test_corrections_are_fitted_once_and_reported(
    compared: ComparisonPlan, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("aladin_training.correction._LEAST", 1)
    monkeypatch.setattr("aladin_training.correction._SHARE", 0.5)
    assert compare(compared, step_times=False, correct=True).failures == {}
    for run in compared.runs():
        assert "corrected_fused" in evaluation_of(run).ranks
        assert (run.folder / "checkpoint" / CORRECTION).exists()
    monkeypatch.setattr("aladin_training.comparison.evaluate.fit_to_records", None)
    assert compare(compared, step_times=False, correct=True).failures == {}


def test_controls_and_costs_are_foretold_as_they_are_taken(
    variant: Callable[..., Recipe], tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    odd = ("final.captions_per_photo=2", "final.batch_size=5")
    recipes = tuple(
        variant(name, *odd, "stage.joint.epochs=1", f"final.epochs={epochs}")
        for name, epochs in (("base", 1), ("long", 2))
    )
    plan = ComparisonPlan(recipes, "base", (0,), "val", tmp_path)
    with caplog.at_level(logging.INFO):
        result = compare(plan, step_times=False, controls=True)
    assert result.failures == {}
    taken = {
        summary.recipe.name: [
            read_facts(plan.run(summary.recipe, 0).folder / "stages" / stage.name).steps
            for stage in summary.recipe.stage
        ]
        for summary in result.comparison.summaries
    }
    size = training_sizes(recipes, NullProgress())["base"]
    joint, final = (steps_of(stage, size) for stage in recipes[0].stage)
    control = f"base-{2 * final}-steps"  # beyond the shared start
    assert taken == {
        "base": [joint, final],
        "long": [joint, 2 * final],
        control: [joint, 2 * final],
    }
    assert caplog.records[0].message.startswith(
        f"to train: 3 runs, 4 different stages, {joint + 5 * final} optimizer steps"
    )
    # The control and "long" take equal steps of one kind: their weights are the same.
    ours, theirs = (plan.run(each.recipe, 0) for each in result.comparison.summaries[1:])
    assert evaluation_of(ours).model_id == evaluation_of(theirs).model_id


@pytest.fixture(scope="module")
def grid_plan(recipe_path: Path, tmp_path_factory: pytest.TempPathFactory) -> ComparisonPlan:
    """Two learning rates for both recipes, of which "other" lacks a second key."""
    folder = tmp_path_factory.mktemp("grid")
    text = recipe_path.read_text(encoding="utf-8").replace('name = "student"', 'name = "pupil"')
    (folder / "other.toml").write_text(text.replace('name = "test"', 'name = "other"'))
    return load_plan(
        [folder / "other.toml", recipe_path],
        2,
        folder / "out",
        overrides=["data.selection=0.4", "stage.joint.epochs=1", "final.epochs=1"],
        choices=Choices(
            parse_grid(["final.lr=1e-30,1e-2", "stage.student.weight_decay=0.1"]),
            "selection",
        ),
    )


@pytest.fixture(scope="module")
def chosen(grid_plan: ComparisonPlan) -> ComparisonResult:
    result = compare(grid_plan, step_times=False)
    assert result.failures == {}
    return result


def test_the_chosen_settings_are_trained_with_all_seeds(
    grid_plan: ComparisonPlan, chosen: ComparisonResult
) -> None:
    decay = "stage.student.weight_decay=0.1"
    tried = {
        (recipe, lr): f"{recipe},final.lr={lr}{end}"
        for recipe, end in (("test", f",{decay}"), ("other", ""))
        for lr in ("1e-2", "1e-30")
    }
    folders = set((grid_plan.out / "runs").glob("*/*"))
    finals = {run.folder for run in grid_plan.runs()}
    of_candidates = {grid_plan.out / "runs" / name / "seed-0" for name in tried.values()}
    assert folders == finals | of_candidates
    evaluations = {
        key: load_evaluation(grid_plan.out / "runs" / name / "seed-0", "selection")
        for key, name in tried.items()
    }
    rsums = {key: each.metrics()["matching"].rsum for key, each in evaluations.items() if each}
    for summary, choice in zip(chosen.comparison.summaries, chosen.comparison.choices, strict=True):
        name = summary.recipe.name
        best = max((key for key in rsums if key[0] == name), key=rsums.__getitem__)
        assert choice.chosen is not None
        assert choice.chosen.partition(", ")[0] == f"final.lr={best[1]}"
        assert summary.recipe.final_stage.lr == float(best[1])
        of_best = evaluations[best]
        assert of_best is not None
        # The same weights, taken over.
        assert evaluation_of(grid_plan.run(summary.recipe, 0)).model_id == of_best.model_id


def test_a_choice_is_made_once_and_not_before_its_runs_are_finished(
    grid_plan: ComparisonPlan, chosen: ComparisonResult, tmp_path: Path
) -> None:
    before, text = times_of(grid_plan.out, "model.safetensors"), chosen.markdown.read_text()
    assert compare(grid_plan, step_times=False).markdown.read_text() == text
    assert times_of(grid_plan.out, "model.safetensors") == before
    elsewhere = dataclasses.replace(grid_plan, out=tmp_path / "nothing")
    assert [each.chosen for each in choose_settings(elsewhere, "selection")] == [None, None]


def test_folds_are_trained_apart_and_a_pilot_goes_on_to_the_whole(
    recipe_path: Path, tmp_path: Path
) -> None:
    """18 photos in three folds of six; of each run the photos that it reports were not trained on.

    The start of a fold is that of its own photos, and so are the settings that it chooses.
    """
    plan = load_plan(
        [recipe_path],
        3,
        tmp_path / "out",
        Reported(cross=3),
        overrides=["data.selection=0.4", *SHORT],
        choices=Choices(parse_grid(["final.lr=1e-4,1e-2"]), "selection"),
    )
    foretold = run_pilot(plan, 2, controls=False, progress=NullProgress())
    # Of each fold two rates are tried, on one start; the better one's run is the fold's own.
    assert "9 runs, 9 different stages" in foretold
    assert "by 2 runs that took" in foretold
    assert [is_trained(run) for run in plan.candidate_runs()] == [True] * 2 + [False] * 4
    before = times_of(plan.out, "model.safetensors")
    assert run_pilot(plan, 2, controls=False, progress=NullProgress()) == foretold
    assert times_of(plan.out, "model.safetensors") == before
    result = compare(plan, step_times=False)
    assert result.failures == {}
    assert [choice.fold for choice in result.comparison.choices] == [0, 1, 2]
    (summary,) = result.comparison.summaries
    source = Path(plan.recipes[0].data.source)
    held = [{record.id for record in read_split_of(plan, seed, "val")} for seed in range(3)]
    assert [len(each) for each in held] == [6, 6, 6]
    assert set.union(*held) == {record.id for record in read_records(source)}
    starts: set[bytes] = set()
    for seed, run in summary.runs.items():
        trained = {record.id for record in read_split_of(plan, seed, "train")}
        chosen_on = {record.id for record in read_split_of(plan, seed, "selection")}
        assert trained | held[seed] == set.union(*held)
        assert not (trained | chosen_on) & held[seed]
        assert chosen_on < trained
        records = read_split_of(plan, seed, "val")
        folder = plan.run(summary.recipe, seed).folder
        served = evaluate_checkpoint(load_checkpoint(folder / "checkpoint"), records)
        assert run.evaluation.queries == records_digest(records)
        ours, theirs = run.evaluation.metrics()["matching"], served.metrics()["matching"]
        assert ours.rsum == pytest.approx(theirs.rsum, abs=20)  # the cache has half precision
        starts.add((folder / "stages" / "joint" / "checkpoint" / "model.safetensors").read_bytes())
    assert len(starts) == 3
    assert before.items() <= times_of(plan.out, "model.safetensors").items()
    (plan.out / "pilot.json").unlink()
    with pytest.raises(InputError, match="its first 1 runs were finished before"):
        run_pilot(plan, 1, controls=False, progress=NullProgress())
    assert "dealt into 3 equal folds" in result.markdown.read_text()
