"""Settings chosen from a grid: its combinations, the choice, and a comparison that uses it."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest

from aladin_network.errors import ConfigError
from aladin_network.scoring.metrics import DirectionMetrics, RetrievalMetrics
from aladin_training.comparison.compare import choose_settings, compare
from aladin_training.comparison.evaluation import load_evaluation
from aladin_training.comparison.grid import (
    RecipeGrid,
    best_by_value,
    choose,
    parse_followers,
    parse_grid,
    recipe_grid,
)
from aladin_training.comparison.plan import Choices, ComparisonPlan, load_plan
from aladin_training.config.recipe import load_recipe

LR = "final.lr=1e-30,1e-2"


def test_a_grid_names_keys_and_values() -> None:
    grid = parse_grid(["final.lr=1e-4, 3e-4", "final.epochs=2"])
    assert grid == {"final.lr": ("1e-4", "3e-4"), "final.epochs": ("2",)}
    for wrong in ("final.lr", "=1,2", "final.lr=", "final.lr=1,,2", "final.lr=1,1"):
        with pytest.raises(ConfigError, match="grid"):
            parse_grid([wrong])
    with pytest.raises(ConfigError, match="distinct"):
        parse_grid(["a=1", "a=2"])


def test_a_recipe_is_combined_with_every_value(recipe_path: Path) -> None:
    recipe = load_recipe(recipe_path)
    grid = {"final.lr": ("0.1", "0.2"), "stage.joint.epochs": ("1", "2")}
    found = recipe_grid(recipe_path, recipe, ["seed=3"], grid)
    assert list(found.candidates) == [
        "final.lr=0.1, stage.joint.epochs=1",
        "final.lr=0.1, stage.joint.epochs=2",
        "final.lr=0.2, stage.joint.epochs=1",
        "final.lr=0.2, stage.joint.epochs=2",
    ]
    settings = [
        (each.stage[1].lr, each.stage[0].epochs, each.seed) for each in found.candidates.values()
    ]
    assert settings == [(0.1, 1, 3), (0.1, 2, 3), (0.2, 1, 3), (0.2, 2, 3)]
    names = [each.name for each in found.candidates.values()]
    assert len(set(names)) == 4
    assert all(Path(name).name == name for name in names)


def quality(r1: int) -> RetrievalMetrics:
    """Recalls that differ in one number."""
    other = DirectionMetrics(r1=0.0, r5=0.0, r10=0.0, median_rank=1.0, mean_rank=1.0)
    return RetrievalMetrics(other._replace(r1=float(r1)), other)


def test_the_best_finished_combination_is_chosen(recipe_path: Path) -> None:
    grid = {"final.lr": ("1", "2", "3"), "final.epochs": ("1", "2")}
    found: RecipeGrid = recipe_grid(recipe_path, load_recipe(recipe_path), [], grid)
    labels = list(found.candidates)
    recalls = {0: quality(10), 2: quality(30), 3: quality(30), 5: quality(20)}
    inner = choose(found, {labels[place]: each for place, each in recalls.items()})
    assert inner.chosen == "final.lr=2, final.epochs=1"
    assert inner.at_edge == ()  # two values have no inside
    assert choose(found, {labels[5]: quality(20)}).at_edge == ("final.lr",)
    by_rate = best_by_value(found, inner, "final.lr")
    assert by_rate == {"1": quality(10), "2": quality(30), "3": quality(20)}
    by_epochs = best_by_value(found, inner, "final.epochs")
    assert by_epochs == {"1": quality(30), "2": quality(30)}
    assert choose(found, {}).chosen is None


def test_a_setting_applies_where_it_exists(recipe_path: Path, tmp_path: Path) -> None:
    other = tmp_path / "other.toml"
    other.write_text(
        recipe_path.read_text(encoding="utf-8")
        .replace('name = "test"', 'name = "other"')
        .replace('loss = "listnet"', 'loss = "listnet"\noptions = { temperature = 5 }')
        .replace('name = "student"', 'name = "pupil"'),
        encoding="utf-8",
    )
    plan = load_plan(
        [recipe_path, other],
        1,
        tmp_path / "out",
        overrides=["stage.pupil.lr=0.5", "final.epochs=7", "data.selection=0.4"],
        choices=Choices(parse_grid([LR, "stage.student.weight_decay=0.1,0.2"]), "selection"),
    )
    assert [recipe.final_stage.epochs for recipe in plan.recipes] == [7, 7]
    assert plan.recipes[1].final_stage.lr == 0.5
    assert plan.left_out == {
        "stage.pupil.lr=0.5": ("test",),
        "stage.student.weight_decay": ("other",),
    }
    assert [len(grid.candidates) for grid in plan.grids] == [4, 2]
    with pytest.raises(ConfigError, match=r"no recipe takes stage.pupils.lr=1: .*no stage named"):
        load_plan([recipe_path, other], 1, tmp_path, overrides=["stage.pupils.lr=1"])


def test_a_recipe_takes_over_what_was_chosen_for_another(recipe_path: Path, tmp_path: Path) -> None:
    other = tmp_path / "other.toml"
    other.write_text(
        recipe_path.read_text(encoding="utf-8")
        .replace('name = "test"', 'name = "other"')
        .replace('name = "student"', 'name = "pupil"'),
        encoding="utf-8",
    )

    def plan(*followers: str) -> ComparisonPlan:
        return load_plan(
            [other, recipe_path],
            1,
            tmp_path / "out",
            overrides=["data.selection=0.4", "stage.joint.epochs=1", "final.epochs=1"],
            choices=Choices(
                parse_grid([LR, "stage.student.weight_decay=0.1,0.2"]),
                "selection",
                parse_followers(followers),
            ),
        )

    following = plan("other=test")
    assert {run.recipe.name.partition(",")[0] for run in following.candidate_runs()} == {"test"}
    assert len(plan().candidate_runs()) == 6
    result = compare(following, step_times=False)
    assert result.failures == {}
    taken, own = result.comparison.choices
    assert own.chosen is not None
    assert taken.chosen == own.chosen.partition(", ")[0]  # it has no weight decay of this name
    assert taken.follows == "test"
    rates = {each.recipe.name: each.recipe.final_stage.lr for each in result.comparison.summaries}
    assert rates["other"] == rates["test"]
    report = result.markdown.read_text(encoding="utf-8")
    assert "The settings chosen for test are also those of other." in report
    assert f"| other | {taken.chosen} | - | as test |" in report
    unfinished = choose_settings(
        dataclasses.replace(following, out=tmp_path / "nothing"), "selection"
    )
    assert [each.chosen for each in unfinished] == [None, None]
    with pytest.raises(ConfigError, match=r"other has no stage\.student"):
        plan("test=other")
    with pytest.raises(ConfigError, match="third is no recipe"):
        plan("other=third")
    for wrong in (["other"], ["other=test", "other=test"], ["a=b", "b=c"]):
        with pytest.raises(ConfigError, match="settings-as"):
            parse_followers(wrong)


def test_a_choice_needs_a_split_that_is_not_reported(recipe_path: Path, tmp_path: Path) -> None:
    grid = parse_grid([LR])
    with pytest.raises(ConfigError, match="other than the reported one, got 'val'"):
        load_plan([recipe_path], 1, tmp_path, choices=Choices(grid, "val"))
    with pytest.raises(ConfigError, match="keeps no photos apart"):
        load_plan([recipe_path], 1, tmp_path, choices=Choices(grid, "selection"))


def test_the_chosen_settings_are_trained_with_all_seeds(recipe_path: Path, tmp_path: Path) -> None:
    other = tmp_path / "other.toml"
    other.write_text(
        recipe_path.read_text(encoding="utf-8").replace('name = "test"', 'name = "other"'),
        encoding="utf-8",
    )

    def plan() -> ComparisonPlan:
        return load_plan(
            [recipe_path, other],
            2,
            tmp_path / "out",
            overrides=["data.selection=0.4", "stage.joint.epochs=1", "stage.student.epochs=1"],
            choices=Choices(parse_grid([LR]), "selection"),
        )

    result = compare(plan(), step_times=False)
    assert result.failures == {}
    runs = tmp_path / "out" / "runs"
    folders = sorted(each.relative_to(runs).as_posix() for each in runs.glob("*/*"))
    assert folders == [
        "other,final.lr=1e-2/seed-0",
        "other,final.lr=1e-30/seed-0",
        "other/seed-0",
        "other/seed-1",
        "test,final.lr=1e-2/seed-0",
        "test,final.lr=1e-30/seed-0",
        "test/seed-0",
        "test/seed-1",
    ]
    tried = {
        label: load_evaluation(runs / f"test,{label}" / "seed-0", "selection")
        for label in ("final.lr=1e-30", "final.lr=1e-2")
    }
    rsums = {label: each.metrics()["matching"].rsum for label, each in tried.items() if each}
    best = max(rsums, key=rsums.__getitem__)
    chosen = load_evaluation(runs / "test" / "seed-0", "val")
    of_best = tried[best]
    assert chosen is not None
    assert of_best is not None
    assert chosen.model_id == of_best.model_id  # the same weights, taken over
    report = result.markdown.read_text(encoding="utf-8")
    assert "Settings: each recipe's own final.lr, chosen on the split selection" in report
    assert f"| test | {best} |" in report
    assert "(figures/settings.png)" in report
    assert "simultaneous interval" in report
    weights = {each: each.stat().st_mtime_ns for each in runs.rglob("model.safetensors")}
    assert compare(plan(), step_times=False).markdown.read_text(encoding="utf-8") == report
    assert weights == {each: each.stat().st_mtime_ns for each in weights}
