"""Which recipes and runs a comparison consists of."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from aladin_network.errors import ConfigError
from aladin_training.comparison.plan import Choices, ComparisonPlan, find_recipes, load_plan
from aladin_training.config.recipe import Recipe


def test_a_folder_stands_for_its_recipes_in_order(tmp_path: Path) -> None:
    for name in ("b.toml", "a.toml", "_base.toml", "notes.txt"):
        (tmp_path / name).touch()
    single = tmp_path / "other" / "_single.toml"
    found = find_recipes([tmp_path, single])
    assert found == [tmp_path / "a.toml", tmp_path / "b.toml", single]


def test_a_folder_without_recipes_is_refused(tmp_path: Path) -> None:
    (tmp_path / "_base.toml").touch()
    with pytest.raises(ConfigError, match="no recipe"):
        find_recipes([tmp_path])


def test_runs_come_seed_by_seed(plan: ComparisonPlan) -> None:
    runs = plan.runs()
    assert [run.label for run in runs] == [
        "base seed 0",
        "long seed 0",
        "third seed 0",
        "base seed 1",
        "long seed 1",
        "third seed 1",
    ]
    assert runs[4].folder == plan.out / "runs" / "long" / "seed-1"
    assert runs[4].recipe.seed == 1


def test_recipes_are_read_with_their_settings(recipe_path: Path, tmp_path: Path) -> None:
    plan = load_plan([recipe_path], 2, tmp_path, "test", overrides=["stage.joint.lr=0.5"])
    assert plan.baseline == "test"
    assert plan.seeds == (0, 1)
    assert plan.recipes[0].stage[0].lr == 0.5


@pytest.mark.parametrize(
    ("names", "baseline", "says"),
    [
        (["a", "a"], "a", "two recipes are named 'a'"),
        (["a", "b"], "c", "baseline 'c' is not one of"),
        (["../a"], "../a", "name without slashes"),
    ],
)
def test_names_that_make_no_comparison(
    names: list[str], baseline: str, says: str, variant: Callable[..., Recipe], tmp_path: Path
) -> None:
    with pytest.raises(ConfigError, match=says):
        ComparisonPlan(tuple(map(variant, names)), baseline, (0,), "val", tmp_path)


def test_a_file_with_variants_stands_for_all_of_them(recipe_path: Path, tmp_path: Path) -> None:
    (tmp_path / "base.toml").write_text(recipe_path.read_text())
    path = tmp_path / "table.toml"
    path.write_text(
        'extends = "base.toml"\nname = "table"\n[variants]\n'
        'slow = { "final.lr" = 0.1 }\nfast = { "final.lr" = 0.2 }\n'
    )
    grid = {"final.epochs": ("3", "4")}
    plan = load_plan([path], 1, tmp_path, overrides=["seed=9"], choices=Choices(grid, "other"))
    assert [recipe.name for recipe in plan.recipes] == ["table-slow", "table-fast"]
    assert [recipe.final_stage.lr for recipe in plan.recipes] == [0.1, 0.2]
    assert [recipe.seed for recipe in plan.recipes] == [9, 9]
    candidates = [list(each.candidates.values()) for each in plan.grids]
    assert [[each.final_stage.lr for each in of] for of in candidates] == [[0.1] * 2, [0.2] * 2]
    assert [each.final_stage.epochs for each in candidates[1]] == [3, 4]


def test_no_seed_is_refused(recipe_path: Path, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="seeds is 0"):
        load_plan([recipe_path], 0, tmp_path)
