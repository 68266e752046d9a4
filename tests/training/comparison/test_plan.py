"""What a comparison consists of: recipes, runs and their order, grids, steps and controls."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from aladin_network.errors import ConfigError
from aladin_network.scoring.metrics import DirectionMetrics, RetrievalMetrics
from aladin_network.types import NullProgress
from aladin_training.comparison.budget import (
    TrainingSize,
    foretell,
    steps_beyond_start,
    training_sizes,
    with_controls,
)
from aladin_training.comparison.compare import RunQueue
from aladin_training.comparison.grid import (
    best_by_value,
    choose,
    parse_grid,
    recipe_grid,
)
from aladin_training.comparison.plan import (
    Choices,
    ComparisonPlan,
    PlannedRun,
    Reported,
    find_recipes,
    load_plan,
)
from aladin_training.config.recipe import Recipe, load_recipe

Variant = Callable[..., Recipe]

SIZES = dict.fromkeys(["base", "long", "third", "odd", "wider", "other"], TrainingSize(12, 24))
LR = {"final.lr": ("1", "2")}


@pytest.fixture
def other_path(recipe_path: Path, tmp_path: Path) -> Path:
    """The small recipe as "other", whose last stage is "pupil"."""
    path = tmp_path / "other.toml"
    text = recipe_path.read_text(encoding="utf-8").replace('name = "student"', 'name = "pupil"')
    path.write_text(text.replace('name = "test"', 'name = "other"'), encoding="utf-8")
    return path


def test_a_folder_stands_for_its_recipes_in_order(tmp_path: Path) -> None:
    for name in ("b.toml", "a.toml", "_base.toml", "notes.txt"):
        (tmp_path / name).touch()
    single = tmp_path / "other" / "_single.toml"
    assert find_recipes([tmp_path, single]) == [tmp_path / "a.toml", tmp_path / "b.toml", single]
    for name in "ab":
        (tmp_path / f"{name}.toml").unlink()
    with pytest.raises(ConfigError, match="no recipe"):
        find_recipes([tmp_path])


def test_a_file_with_variants_stands_for_all_of_them(recipe_path: Path, tmp_path: Path) -> None:
    (tmp_path / "base.toml").write_text(recipe_path.read_text())
    path = tmp_path / "table.toml"
    path.write_text(
        'extends = "base.toml"\nname = "table"\n[variants]\n'
        'slow = { "final.lr" = 0.1 }\nfast = { "final.lr" = 0.2 }\n'
    )
    grid = {"final.epochs": ("3", "4")}
    plan = load_plan([path], 2, tmp_path, overrides=["seed=9"], choices=Choices(grid, "other"))
    assert (plan.baseline, plan.seeds) == ("table-slow", (0, 1))
    assert [recipe.name for recipe in plan.recipes] == ["table-slow", "table-fast"]
    assert [(each.final_stage.lr, each.seed) for each in plan.recipes] == [(0.1, 9), (0.2, 9)]
    candidates = [list(each.candidates.values()) for each in plan.grids]
    assert [[each.final_stage.lr for each in of] for of in candidates] == [[0.1] * 2, [0.2] * 2]
    assert [each.final_stage.epochs for each in candidates[1]] == [3, 4]
    assert load_plan([path], 2, tmp_path, first_seed=5).seeds == (5, 6)


def test_a_setting_applies_to_the_recipes_that_have_it(
    recipe_path: Path, other_path: Path, tmp_path: Path
) -> None:
    plan = load_plan(
        [recipe_path, other_path],
        1,
        tmp_path / "out",
        overrides=["stage.pupil.lr=0.5", "final.epochs=7", "data.selection=0.4"],
        choices=Choices({**LR, "stage.student.weight_decay": ("0.1", "0.2")}, "selection"),
    )
    assert [recipe.final_stage.epochs for recipe in plan.recipes] == [7, 7]
    assert plan.recipes[1].final_stage.lr == 0.5
    assert plan.left_out == {
        "stage.pupil.lr=0.5": ("test",),
        "stage.student.weight_decay": ("other",),
    }
    assert [len(grid.candidates) for grid in plan.grids] == [4, 2]


@pytest.mark.parametrize(
    ("settings", "choices", "seeds", "says"),
    [
        ([], None, 0, "seeds is 0"),
        (["stage.pupils.lr=1"], None, 1, r"no recipe takes stage.pupils.lr=1: .*no stage named"),
        ([], Choices(LR, "val"), 1, "other than the reported one, got 'val'"),
        ([], Choices(LR, "selection"), 1, "keeps no photos apart"),
    ],
)
def test_plans_that_cannot_be_made_are_refused(
    settings: list[str],
    choices: Choices | None,
    seeds: int,
    says: str,
    recipe_path: Path,
    other_path: Path,
    tmp_path: Path,
) -> None:
    paths = [recipe_path, other_path]
    with pytest.raises(ConfigError, match=says):
        load_plan(paths, seeds, tmp_path, overrides=settings, choices=choices)


@pytest.mark.parametrize(
    ("names", "baseline", "says"),
    [
        (["a", "a"], "a", "two recipes are named 'a'"),
        (["a", "b"], "c", "baseline 'c' is not one of"),
        (["../a"], "../a", "name without slashes"),
        ([], "a", "at least one recipe"),
    ],
)
def test_names_that_make_no_comparison_are_refused(
    names: list[str], baseline: str, says: str, variant: Variant, tmp_path: Path
) -> None:
    with pytest.raises(ConfigError, match=says):
        ComparisonPlan(tuple(map(variant, names)), baseline, (0,), "val", tmp_path)


def labels(runs: Sequence[PlannedRun | None]) -> list[str]:
    return [run.label for run in runs if run is not None]


def test_runs_come_seed_by_seed(plan: ComparisonPlan) -> None:
    runs = plan.runs()
    names = ("base", "long", "third")
    assert labels(runs) == [f"{name} seed {seed}" for seed in (0, 1) for name in names]
    assert runs[4].folder == plan.out / "runs" / "long" / "seed-1"
    assert runs[4].recipe.seed == 1


def test_a_shared_start_is_waited_for_only_if_nothing_else_is_left(
    plan: ComparisonPlan, variant: Variant
) -> None:
    other = variant("other", "stage.joint.lr=0.5")  # a start of its own
    queue = RunQueue(dataclasses.replace(plan, recipes=(*plan.recipes[:2], other)).runs())
    taken = [queue.take() for _ in range(5)]
    # At last only "long" is left, and both of its starts are in training.
    assert labels(taken) == [
        *("base seed 0", "other seed 0", "base seed 1", "other seed 1", "long seed 0")
    ]
    assert taken[2] is not None
    queue.end(taken[2])
    assert labels([queue.take(), queue.take()]) == ["long seed 1"]
    queue = RunQueue(plan.runs())
    first = queue.take()
    assert first is not None
    queue.end(first)
    assert labels([queue.take(), queue.take()]) == ["long seed 0", "third seed 0"]


def test_grids_are_read() -> None:
    grid = parse_grid(["final.lr=1e-4, 3e-4", "final.epochs=2"])
    assert grid == {"final.lr": ("1e-4", "3e-4"), "final.epochs": ("2",)}
    wrong_grids = [[each] for each in ("lr", "=1,2", "lr=", "lr=1,,2", "lr=1,1")]
    for wrong in (*wrong_grids, ["a=1", "a=2"]):
        with pytest.raises(ConfigError, match=r"grid|distinct"):
            parse_grid(wrong)


def test_a_recipe_is_combined_with_every_value(recipe_path: Path) -> None:
    grid = {"final.lr": ("0.1", "0.2"), "stage.joint.epochs": ("1", "2")}
    found = recipe_grid(recipe_path, load_recipe(recipe_path), ["seed=3"], grid).candidates
    combinations = {
        label: (each.stage[1].lr, each.stage[0].epochs, each.seed) for label, each in found.items()
    }
    assert combinations == {
        f"final.lr={lr}, stage.joint.epochs={epochs}": (lr, epochs, 3)
        for lr in (0.1, 0.2)
        for epochs in (1, 2)
    }
    names = {each.name for each in found.values()}
    assert len(names) == 4
    assert all(Path(name).name == name for name in names)


def recalls(r1: int) -> RetrievalMetrics:
    other = DirectionMetrics(r1=0.0, r5=0.0, r10=0.0, median_rank=1.0, mean_rank=1.0)
    return RetrievalMetrics(other._replace(r1=float(r1)), other)


def test_the_best_finished_combination_is_chosen(recipe_path: Path) -> None:
    grid = {"final.lr": ("1", "2", "3"), "final.epochs": ("1", "2")}
    found = recipe_grid(recipe_path, load_recipe(recipe_path), [], grid)
    names = list(found.candidates)
    finished = {0: recalls(10), 2: recalls(30), 3: recalls(30), 5: recalls(20)}
    inner = choose(found, {names[place]: each for place, each in finished.items()})
    assert inner.chosen == "final.lr=2, final.epochs=1"
    assert inner.at_edge == ()  # two values have no inside
    assert choose(found, {names[5]: recalls(20)}).at_edge == ("final.lr",)
    by_rate = best_by_value(found, inner, "final.lr")
    assert by_rate == {"1": recalls(10), "2": recalls(30), "3": recalls(20)}
    by_epochs = best_by_value(found, inner, "final.epochs")
    assert by_epochs == {"1": recalls(30), "2": recalls(30)}
    assert choose(found, {}).chosen is None


def test_the_training_split_is_counted_without_the_photos_kept_apart(
    variant: Variant, caplog: pytest.LogCaptureFixture
) -> None:
    recipes = [
        variant("base"),
        variant("careful", "data.selection=0.4"),
        variant("gone", "data.source=gone.jsonl"),
    ]
    sizes = training_sizes(recipes, NullProgress())
    assert sizes["base"] == TrainingSize(12, 24)
    assert 0 < sizes["careful"].photos < 12
    assert "gone" not in sizes
    assert "gone: its steps cannot be counted" in caplog.text


def test_steps_of_stages_that_are_shared_or_finished_are_not_foretold(plan: ComparisonPlan) -> None:
    # Per seed: one joint stage of 3 x 3 steps, the students of base and third are one of 2 x 3.
    assert foretell(plan.runs(), SIZES, {}) == "6 runs, 6 different stages, 60 optimizer steps"
    ms = dict.fromkeys(SIZES, 60_000.0)
    assert "60 optimizer steps: about 1.0 h" in foretell(plan.runs(), SIZES, ms)
    assert foretell(plan.runs()[:1], SIZES, {}).startswith("1 runs, 2 different stages, 15 ")


def final_steps(recipe: Recipe) -> tuple[str, int | None]:
    return recipe.name, recipe.final_stage.max_steps


def test_a_control_takes_exactly_as_many_steps_as_the_recipe_that_takes_more(
    plan: ComparisonPlan, variant: Variant
) -> None:
    """More steps of the baseline would be no control of another network or of other data."""
    odd = variant("odd", "final.batch_size=5", "final.epochs=2")  # 8 steps, base takes 6
    wider = variant("wider", "stage.student.epochs=9", "model.alignment.dim=4")
    other = variant("other", "stage.student.epochs=9", "data.selection=0.25")
    recipes = (*plan.recipes, odd)
    controlled = with_controls(dataclasses.replace(plan, recipes=recipes), SIZES)
    assert controlled.recipes[:4] == recipes
    assert [final_steps(each) for each in controlled.recipes[4:]] == [
        ("base-15-steps", 15),
        ("base-8-steps", 8),
    ]
    assert controlled.controls == {"base-15-steps": "base", "base-8-steps": "base"}
    control = controlled.recipes[4]
    final = dataclasses.replace(control.final_stage, max_steps=None)
    assert (*control.stage[:-1], final) == plan.recipes[0].stage
    assert with_controls(plan, {}) == plan
    # Another start is not shared: 9 + 15 steps beside 9 + 6.
    begun = variant("odd", "stage.joint.lr=0.5", "stage.student.epochs=5")
    differently = dataclasses.replace(plan, recipes=(plan.recipes[0], begun))
    assert with_controls(differently, SIZES).recipes[2].final_stage.max_steps == 15
    apart = dataclasses.replace(plan, recipes=(plan.recipes[0], wider, other))
    assert with_controls(apart, SIZES).controls == {}


def test_a_claim_beside_another_recipe_than_the_baseline_has_a_control_too(
    plan: ComparisonPlan, variant: Variant
) -> None:
    """Three stages beside two, of which the last is the other's second."""
    step = json.dumps({"shape": "step", "step_epochs": 2})
    stepped = variant("third", f"final.schedule={step}")
    longer = dataclasses.replace(
        stepped,
        name="long",
        stage=(*stepped.stage, dataclasses.replace(stepped.stage[-1], name="more")),
    )
    plan = dataclasses.replace(plan, recipes=(plan.recipes[0], longer, stepped))
    controlled = with_controls(plan, SIZES, [("long", "third"), ("third", "gone")])
    assert controlled.controls["third-12-steps"] == "third"
    control = next(each for each in controlled.recipes if each.name == "third-12-steps")
    assert control.final_stage.max_steps == 12
    assert control.final_stage.schedule.step_epochs == 4  # at the same part of the stage
    assert steps_beyond_start((longer, control), lambda _, stage: stage.steps(3)) == [12, 12]
    assert steps_beyond_start((longer, stepped), lambda _, stage: stage.steps(3)) == [12, 6]


def test_controls_have_the_grid_of_their_recipe(plan: ComparisonPlan, recipe_path: Path) -> None:
    base = dataclasses.replace(load_recipe(recipe_path), name="base")
    grid = recipe_grid(recipe_path, base, [], LR)
    grids = (grid, *(dataclasses.replace(grid, recipe=name) for name in ("long", "third")))
    chosen = dataclasses.replace(plan, grids=grids, select="test")
    controls = with_controls(chosen, SIZES)
    assert [each.recipe for each in controls.grids] == ["base", "long", "third", "base-15-steps"]
    candidates = controls.grids[-1].candidates
    assert [(each.final_stage.lr, each.final_stage.max_steps) for each in candidates.values()] == [
        *((1, 15), (2, 15))
    ]
    assert len({each.name for each in (*candidates.values(), *grid.candidates.values())}) == 4


def test_every_seed_has_its_fold_and_every_fold_its_choice(
    recipe_path: Path, tmp_path: Path
) -> None:
    settings, choices = ["data.selection=0.4"], Choices(LR, "selection")
    plan = load_plan([recipe_path], 5, tmp_path, Reported(cross=2), None, settings, choices)
    (recipe,) = plan.recipes
    runs = plan.runs()
    assert [(run.recipe.seed, run.recipe.data.fold) for run in runs] == [
        *((0, 0), (1, 1), (2, 0), (3, 1), (4, 0))
    ]
    assert {run.recipe.data.folds for run in runs} == {2}
    tried = [(run.recipe.data.fold, run.recipe.seed) for run in plan.candidate_runs()]
    assert tried == [(0, 0), (0, 0), (1, 1), (1, 1)]
    labels = list(plan.grids[0].candidates)
    settled = plan.with_choices(
        [choose(plan.grids[0], {labels[fold]: recalls(1)}, fold) for fold in (0, 1)]
    )
    rates = [run.recipe.final_stage.lr for run in settled.runs()]
    assert rates == [1, 2, 1, 2, 1]
    assert {run.recipe.name for run in settled.runs()} == {recipe.name}


@pytest.mark.parametrize(("settings", "split"), [([], "val"), (["data.selection=0.4"], "train")])
def test_folds_need_photos_to_choose_on_and_report_in_the_place_of_validation(
    settings: list[str], split: str, recipe_path: Path, tmp_path: Path
) -> None:
    with pytest.raises(ConfigError, match="cross-validation tests on folds in the place of"):
        load_plan([recipe_path], 2, tmp_path, Reported(split, cross=2), None, settings)
