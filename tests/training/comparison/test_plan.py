"""Which recipes and runs a comparison consists of."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from aladin_network.errors import ConfigError
from aladin_training.comparison.plan import ComparisonPlan, find_recipes, load_plan
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


def test_no_seed_is_refused(recipe_path: Path, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="seeds is 0"):
        load_plan([recipe_path], 0, tmp_path)
