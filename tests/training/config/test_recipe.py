"""Recipes: every shipped one loads, and what is wrong in one is named."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest

from aladin_network.errors import ConfigError
from aladin_training.config.recipe import load_recipe
from aladin_training.config.shipped import recipes_folder
from aladin_training.config.stage import task_kind
from aladin_training.config.toml_files import variants_of
from aladin_training.tasks import TASKS
from aladin_training.tasks.joint import build_tasks

SHIPPED = sorted(recipes_folder().rglob("*.toml"))
RUNS = [path for path in SHIPPED if not (path.stem.endswith("-base") or path.stem.startswith("_"))]


@pytest.mark.parametrize("path", RUNS, ids=lambda path: path.stem)
def test_every_shipped_recipe_loads(path: Path) -> None:
    for settings in [[f"variant={name}"] for name in variants_of(path)] or [[]]:
        for stage in load_recipe(path, settings).stage:
            assert {task_kind(name) for name in stage.tasks} <= TASKS.keys()
            build_tasks(stage)


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


CHAIN = """
[[stage]]
name = "peer"
start = "joint"
[stage.tasks.matching]
loss = "triplet"
[[stage]]
name = "boosted"
start = "student"
[stage.tasks.matching_boosting]
loss = "boosting"
[stage.anchors]
scenario = "offline"
stages = ["peer"]
[[stage]]
name = "later"
[stage.tasks.matching]
loss = "triplet"
"""


@pytest.fixture
def chain(recipe_path: Path, tmp_path: Path) -> Path:
    """The stages joint, student (after it), peer (from joint), boosted (needs two), later."""
    path = tmp_path / "chain.toml"
    path.write_text(recipe_path.read_text() + CHAIN)
    return path


@pytest.mark.parametrize(
    ("final", "trained"),
    [
        ("joint", ["joint"]),
        ("student", ["joint", "student"]),
        ("peer", ["joint", "peer"]),
        ("boosted", ["joint", "student", "peer", "boosted"]),
        ("later", ["joint", "student", "peer", "boosted", "later"]),
    ],
)
def test_a_named_final_stage_leaves_out_what_it_does_not_need(
    final: str, trained: list[str], chain: Path
) -> None:
    recipe = load_recipe(chain, [f"final={final}", "final.lr=0.25"])
    assert [stage.name for stage in recipe.stage] == trained
    assert recipe.final_stage.name == final
    assert recipe.final_stage.lr == 0.25


def test_without_a_named_final_stage_all_are_trained(chain: Path) -> None:
    assert len(load_recipe(chain).stage) == 5
    assert load_recipe(chain).final_stage.name == "later"


def test_faults_of_stages_that_are_left_out_are_named_nevertheless(chain: Path) -> None:
    with pytest.raises(ConfigError, match="epochs is 0"):
        load_recipe(chain, ["final=joint", "stage.later.epochs=0"])


VARIANTS = """
extends = "base.toml"
name = "table"
[variants]
plain = {}
wide = { "stage.joint.epochs" = 7, "data.mirror" = false }
short = { final = "joint", "final.lr" = 0.5 }
"""


@pytest.fixture
def variants(recipe_path: Path, tmp_path: Path) -> Path:
    (tmp_path / "base.toml").write_text(recipe_path.read_text())
    path = tmp_path / "table.toml"
    path.write_text(VARIANTS)
    return path


def test_a_variant_is_the_recipe_with_its_settings_and_name(variants: Path) -> None:
    assert variants_of(variants) == ("plain", "wide", "short")
    plain, wide, short = (
        load_recipe(variants, [f"variant={name}"]) for name in ("plain", "wide", "short")
    )
    base = load_recipe(variants.with_name("base.toml"))
    assert plain == dataclasses.replace(base, name="table-plain")
    assert (wide.name, wide.stage[0].epochs, wide.data.mirror) == ("table-wide", 7, False)
    assert [stage.name for stage in short.stage] == ["joint"]
    assert short.final_stage.lr == 0.5


def test_settings_apply_to_the_chosen_variant(variants: Path) -> None:
    overrides = ["stage.joint.epochs=2", "variant=wide", "name=mine"]
    recipe = load_recipe(variants, overrides)
    assert (recipe.name, recipe.stage[0].epochs, recipe.data.mirror) == ("mine", 2, False)


def test_a_file_may_name_the_variant_to_use_by_default(variants: Path) -> None:
    variants.write_text('variant = "short"\n' + variants.read_text())
    assert load_recipe(variants).name == "table-short"
    assert load_recipe(variants, ["variant=plain"]).name == "table-plain"


def test_variants_are_not_those_of_a_file_that_extends_theirs(variants: Path) -> None:
    other = variants.with_name("other.toml")
    other.write_text('variant = "x"\nextends = "table.toml"\n[variants.x]\nseed = 3\n')
    assert variants_of(other) == ("x",)
    assert load_recipe(other).seed == 3


@pytest.mark.parametrize(
    ("override", "text", "message"),
    [
        ([], "", "variant: expected one of the file, known are plain, wide, short; got None"),
        (["variant=tall"], "", "known are plain, wide, short; got tall"),
        (["variant=x"], "[variants]\nx = 3\n", "expected a table of settings for each variant"),
        (["variant=x"], "variants = 3\n", "expected a table of settings for each variant"),
        (["variant=x"], "seed = 1\n", "it has none; got x"),
        (["variant=x"], "[variants.x]\n'stage.gone.lr' = 1\n", "no stage named 'gone'"),
    ],
)
def test_faults_of_variants_are_named(
    override: list[str], text: str, message: str, variants: Path
) -> None:
    if text:
        variants.write_text(f'extends = "base.toml"\n{text}')
    with pytest.raises(ConfigError, match=message):
        load_recipe(variants, override)
