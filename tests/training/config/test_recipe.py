"""Recipes: every shipped one loads, and what is wrong in one is named."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest

from aladin_network.errors import ConfigError
from aladin_training.config.recipe import load_recipe
from aladin_training.config.shipped import find_recipe, recipes_folder, shipped_recipes
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


def test_every_shipped_recipe_has_a_name_and_a_summary() -> None:
    recipes = {each.name: each for each in shipped_recipes()}
    assert {"demo", "flickr8k", "finetune-clip", "compare/mh"} <= set(recipes)
    # Those that are only extended have no name.
    assert set(recipes).isdisjoint({"flickr8k-base", "pair-base"})
    for each in recipes.values():
        assert each.summary and not each.summary.startswith("#")
        assert each.path == recipes_folder() / f"{each.name}.toml"


def test_a_name_finds_its_recipe_unless_a_file_has_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("demo", "demo.toml"):
        assert load_recipe(find_recipe(name)).name == "demo"
    own = tmp_path / "demo"
    own.write_text("# mine\n")
    monkeypatch.chdir(tmp_path)
    assert find_recipe("demo") == Path("demo")
    assert find_recipe(own) == own


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("flikr8k", "flikr8k: no such recipe.*did you mean 'flickr8k'"),
        # As in a checkout, from where a wheel was installed.
        ("elsewhere/recipes/flickr8k.toml", "did you mean 'flickr8k'"),
        ("/nowhere/x.toml", "`aladin train --list` names$"),
    ],
)
def test_an_unknown_name_is_refused_with_a_suggestion(name: str, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        find_recipe(name)


def test_overrides_reach_tables_and_stages_by_name(recipe_path: Path) -> None:
    recipe = load_recipe(
        recipe_path,
        ["seed=3", "data.mirror=false", "stage.student.epochs=7", "data.source=a path.jsonl"],
    )
    assert recipe.seed == 3
    assert recipe.data.mirror is False
    assert recipe.data.source == "a path.jsonl"
    assert [stage.epochs for stage in recipe.stage] == [3, 7]


def test_an_override_of_all_stages_reaches_each(recipe_path: Path) -> None:
    recipe = load_recipe(recipe_path, ["*.epochs=2", "*.schedule.shape=step", "final.epochs=4"])
    assert [stage.epochs for stage in recipe.stage] == [2, 4]
    assert [stage.schedule.shape for stage in recipe.stage] == ["step", "step"]
    with pytest.raises(ConfigError, match=r"stage\.0\.epoch: unknown key; stage\.1\.epoch"):
        load_recipe(recipe_path, ["*.epoch=2"])


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
        (None, "no such recipe"),
    ],
)
def test_unreadable_recipes_are_named(text: str | None, message: str, tmp_path: Path) -> None:
    path = tmp_path / "recipe.toml"
    if text is not None:
        path.write_text(text)
    with pytest.raises(ConfigError, match=message):
        load_recipe(path)


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
        (None, ["joint", "student", "peer", "boosted", "later"]),
    ],
)
def test_a_final_stage_leaves_out_what_it_does_not_need(
    final: str | None, trained: list[str], chain: Path
) -> None:
    recipe = load_recipe(chain, [*([f"final={final}"] if final else []), "final.lr=0.25"])
    assert [stage.name for stage in recipe.stage] == trained
    assert (recipe.final_stage.name, recipe.final_stage.lr) == (trained[-1], 0.25)
    # Faults of stages that are left out are named nevertheless.
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


def test_settings_apply_to_the_chosen_variant_which_a_file_may_name(variants: Path) -> None:
    overrides = ["stage.joint.epochs=2", "variant=wide", "name=mine"]
    recipe = load_recipe(variants, overrides)
    assert (recipe.name, recipe.stage[0].epochs, recipe.data.mirror) == ("mine", 2, False)
    variants.write_text('variant = "short"\n' + variants.read_text())
    assert load_recipe(variants).name == "table-short"
    assert load_recipe(variants, ["variant=plain"]).name == "table-plain"
    # Variants are not those of a file that extends theirs.
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
