"""Recipes: every shipped one loads, and what is wrong in one is named."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest

from aladin_network.errors import ConfigError
from aladin_training.config.recipe import load_recipe
from aladin_training.config.shipped import recipes_folder
from aladin_training.config.stage import task_kind
from aladin_training.tasks import TASKS
from aladin_training.tasks.joint import build_tasks

SHIPPED = sorted(recipes_folder().rglob("*.toml"))
RUNS = [path for path in SHIPPED if not (path.stem.endswith("-base") or path.stem.startswith("_"))]


@pytest.mark.parametrize("path", RUNS, ids=lambda path: path.stem)
def test_every_shipped_recipe_loads(path: Path) -> None:
    recipe = load_recipe(path)
    for stage in recipe.stage:
        assert {task_kind(name) for name in stage.tasks} <= TASKS.keys()
        build_tasks(stage)


def test_the_five_variants_of_aladin_are_shipped() -> None:
    names = {path.stem for path in RUNS}
    assert {"aladin-a-ft", "aladin-d", "aladin-t", "aladin-t-ft", "aladin-a-ft-d-ft"} <= names


def test_overrides_reach_tables_and_stages_by_name(recipe_path: Path) -> None:
    recipe = load_recipe(
        recipe_path,
        ["seed=3", "data.mirror=false", "stage.student.epochs=7", "data.source=a path.jsonl"],
    )
    assert recipe.seed == 3
    assert recipe.data.mirror is False
    assert recipe.data.source == "a path.jsonl"
    assert [stage.epochs for stage in recipe.stage] == [3, 7]


def test_extended_tables_and_stages_are_completed_and_new_stages_appended(
    recipe_path: Path, tmp_path: Path
) -> None:
    (tmp_path / "base.toml").write_text(recipe_path.read_text())
    (tmp_path / "more.toml").write_text(
        'extends = "base.toml"\nseed = 5\n[data]\nmirror = false\n'
        '[[stage]]\nname = "joint"\nlr = 0.5\n'
        '[[stage]]\nname = "third"\n[stage.tasks.matching]\nloss = "triplet"\n'
    )
    base, more = load_recipe(tmp_path / "base.toml"), load_recipe(tmp_path / "more.toml")
    assert (more.seed, more.data.mirror, more.data.source) == (5, False, base.data.source)
    assert [stage.name for stage in more.stage] == ["joint", "student", "third"]
    assert more.stage[0] == dataclasses.replace(base.stage[0], lr=0.5)
    assert more.stage[1] == base.stage[1]
    assert more.model == base.model


@pytest.mark.parametrize(
    ("override", "message"),
    [
        ("sede=3", "sede: unknown key"),
        ("model.matching.depth=3", "model.matching.depth: unknown key"),
        ("stage.joint.epochs=0", "epochs is 0, expected at least 1"),
        ("stage.joint.epochs=two", "stage.0.epochs: .*valid integer"),
        ("stage.joint.average_decay=1.5", "average_decay is 1.5"),
        ("stage.joint.start=nowhere", "start 'nowhere' is not an earlier stage"),
        ("stage.nowhere.epochs=1", "no stage named 'nowhere'"),
        ("stage.joint.tasks.matching.loss=tripel", "unknown loss 'tripel', known are"),
        ("stage.joint.tasks.matching.options.margn=1", "margn"),
        ("final=nowhere", "final 'nowhere' is not a stage"),
        ("stage.joint.teacher=nowhere", "teacher 'nowhere' is not an earlier stage"),
        ('stage.student.teacher=["joint","no"]', r"teacher\[1\] 'no' is not an earlier stage"),
        ('stage.student.teacher=["joint","joint"]', "expected different stages, at least one"),
        ("stage.student.teacher=[]", "expected different stages, at least one"),
        ("threads=0", "threads is 0, expected at least 1"),
        ("seed", "expected key=value"),
    ],
)
def test_faults_are_named(override: str, message: str, recipe_path: Path) -> None:
    with pytest.raises(ConfigError, match=message):
        recipe = load_recipe(recipe_path, [override])
        for stage in recipe.stage:
            build_tasks(stage)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("name = ", "not a recipe"),
        ('name = "x"', "data"),
        ('extends = "gone.toml"', "no such recipe"),
        ('extends = "recipe.toml"', "a file cannot extend itself"),
        ("extends = 3", "expected the name of a file"),
    ],
)
def test_unreadable_recipes_are_named(text: str, message: str, tmp_path: Path) -> None:
    path = tmp_path / "recipe.toml"
    path.write_text(text)
    with pytest.raises(ConfigError, match=message):
        load_recipe(path)


def test_missing_recipe_is_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="no such recipe"):
        load_recipe(tmp_path / "none.toml")
