"""Steps that are foretold, compared with those that are taken, and baselines with as many."""

from __future__ import annotations

import dataclasses
import logging
from collections.abc import Callable
from pathlib import Path

import pytest

from aladin_network.errors import ConfigError
from aladin_network.types import NullProgress
from aladin_training.comparison.budget import (
    TrainingSize,
    foretell,
    steps_of,
    training_sizes,
    with_controls,
)
from aladin_training.comparison.compare import compare
from aladin_training.comparison.grid import recipe_grid
from aladin_training.comparison.plan import CONTROLS, ComparisonPlan
from aladin_training.config.recipe import Recipe, load_recipe
from aladin_training.stage_files import read_facts

NAMES: list[str] = ["base", "long", "third", "odd"]
SIZES = dict.fromkeys(NAMES, TrainingSize(12, 24))


def test_the_training_split_is_counted_without_the_photos_kept_apart(
    variant: Callable[..., Recipe], caplog: pytest.LogCaptureFixture
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


@pytest.mark.parametrize("settings", ["final.captions_per_photo=2", "final.batch_size=5"])
def test_the_steps_of_a_stage_are_those_that_it_takes(
    settings: str, variant: Callable[..., Recipe], tmp_path: Path
) -> None:
    recipe = variant("base", settings, "stage.joint.epochs=1", "final.epochs=2")
    plan = ComparisonPlan((recipe,), "base", (0,), "val", tmp_path)
    compare(plan, step_times=False)
    size = training_sizes([recipe], NullProgress())["base"]
    for stage in recipe.stage:
        facts = read_facts(plan.runs()[0].folder / "stages" / stage.name)
        assert facts.steps == steps_of(stage, size)


def test_what_is_shared_or_finished_is_not_foretold(plan: ComparisonPlan) -> None:
    # Per seed: one joint stage of 3 x 3 steps, the students of base and third are one of 2 x 3.
    assert foretell(plan.runs(), SIZES, {}) == "6 runs, 6 different stages, 60 optimizer steps"
    ms = dict.fromkeys(SIZES, 60_000.0)
    assert "60 optimizer steps: about 1.0 h" in foretell(plan.runs(), SIZES, ms)
    assert foretell(plan.runs()[:1], SIZES, {}).startswith("1 runs, 2 different stages, 15 ")


def test_a_control_takes_as_many_steps_as_the_recipe_that_takes_more(
    plan: ComparisonPlan, variant: Callable[..., Recipe]
) -> None:
    odd = variant("odd", "final.batch_size=5", "final.epochs=2")  # 8 steps, an epoch of base has 3
    longer = dataclasses.replace(plan, recipes=(*plan.recipes, odd))
    controlled = with_controls(longer, SIZES)
    names = [recipe.name for recipe in controlled.recipes]
    assert names == ["base", "long", "third", "odd", "base-9-steps", "base-15-steps"]
    ours, theirs = controlled.recipes[-1], plan.recipes[1]
    assert dataclasses.replace(ours, name="long") == theirs
    assert controlled.recipes[-2].final_stage.epochs == 3
    assert with_controls(plan, {}) == plan


def test_a_recipe_of_another_network_or_other_data_has_no_control(
    plan: ComparisonPlan, variant: Callable[..., Recipe]
) -> None:
    """More steps of the baseline's network would not be the recipe's baseline."""
    long = "stage.student.epochs=9"
    wider = variant("wider", long, "model.alignment.dim=4")
    other = variant("other", long, "data.selection=0.25")
    recipes = (plan.recipes[0], wider, other)
    sizes = SIZES | dict.fromkeys(("wider", "other"), SIZES["base"])
    assert with_controls(dataclasses.replace(plan, recipes=recipes), sizes).recipes == recipes
    same = variant("third", long)
    controlled = with_controls(dataclasses.replace(plan, recipes=(*recipes, same)), sizes)
    assert [each.name for each in controlled.recipes[4:]] == ["base-27-steps"]


def test_a_control_has_the_baseline_s_grid(plan: ComparisonPlan, recipe_path: Path) -> None:
    recipe = load_recipe(recipe_path)
    base = dataclasses.replace(recipe, name="base")
    grid = recipe_grid(recipe_path, base, [], {"final.lr": ("1", "2")})
    grids = (grid, *(dataclasses.replace(grid, recipe=name) for name in ("long", "third")))
    chosen = dataclasses.replace(plan, grids=grids, select="test")
    controls = with_controls(chosen, SIZES)
    assert [each.recipe for each in controls.grids] == ["base", "long", "third", "base-15-steps"]
    candidates = controls.grids[-1].candidates
    assert [each.final_stage.lr for each in candidates.values()] == [1, 2]
    assert {each.final_stage.epochs for each in candidates.values()} == {5}
    assert len({each.name for each in (*candidates.values(), *grid.candidates.values())}) == 4
    assert controls.followers == {}


def test_controls_take_over_a_choice(plan: ComparisonPlan, recipe_path: Path) -> None:
    base = dataclasses.replace(load_recipe(recipe_path), name="base")
    grid = recipe_grid(recipe_path, base, [], {"final.lr": ("1", "2")})
    grids = (grid, *(dataclasses.replace(grid, recipe=name) for name in ("long", "third")))
    followers = {"third": "long", CONTROLS: "base"}
    following = dataclasses.replace(plan, grids=grids, select="test", followers=followers)
    controls = with_controls(following, SIZES)
    assert controls.followers == {"third": "long", "base-15-steps": "base"}
    assert len(controls.candidate_runs()) == 4  # two each of base and long
    assert with_controls(following, {}).followers == {"third": "long"}
    with pytest.raises(ConfigError, match="there are none without --controls"):
        compare(following, train=False, step_times=False)
    with pytest.raises(ConfigError, match="settings-as controls=fourth: fourth is no recipe"):
        dataclasses.replace(following, followers={CONTROLS: "fourth"})


def test_the_cost_is_told_before_anything_is_trained(
    plan: ComparisonPlan, caplog: pytest.LogCaptureFixture
) -> None:
    short = dataclasses.replace(plan, recipes=plan.recipes[:2], seeds=(0,))
    with caplog.at_level(logging.INFO):
        result = compare(short, step_times=False, controls=True)
    assert result.failures == {}
    lines = [record.message for record in caplog.records]
    # base, long and base-15-steps: the latter two differ in nothing but their names.
    assert lines[0].startswith("to train: 3 runs, 3 different stages, 30 optimizer steps")
    report = result.markdown.read_text(encoding="utf-8")
    assert "| base-15-steps | matching |" in report
