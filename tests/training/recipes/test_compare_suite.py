"""The comparison's recipes and the papers' networks, tiny: all train, and what is fair is equal."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

from aladin_network.checkpoint import load_checkpoint
from aladin_training.adapters.parts import part_of
from aladin_training.comparison.plan import find_recipes
from aladin_training.config.recipe import Recipe, load_recipe
from aladin_training.config.shipped import recipes_folder
from aladin_training.config.toml_files import variants_of
from aladin_training.stages.run import run_recipe

SUITE = [
    (path, [f"variant={variant}"] if variant else [])
    for path in find_recipes([recipes_folder() / "compare"])
    for variant in variants_of(path) or [""]
]


@pytest.mark.parametrize(
    ("path", "variant"), SUITE, ids=[load_recipe(*each).name for each in SUITE]
)
def test_recipe_trains_on_the_demo_s_scenes(
    path: Path, variant: list[str], tiny: Callable[..., Recipe], shared: Path, tmp_path: Path
) -> None:
    recipe = tiny(path, *variant)
    result = run_recipe(recipe, tmp_path / "run", shared=shared / "stages")
    stages = tmp_path / "run" / "stages"
    assert recipe.own_score in result.validation[recipe.final_stage.name]
    timing = json.loads((stages / recipe.final_stage.name / "timing.json").read_text())
    assert timing["steps"] == 4  # 16 photos with 2 captions, in batches of 8
    assert timing["parameters"] > 0
    start, end = (
        load_file(stages / name / "checkpoint" / "model.safetensors")
        for name in ("start", recipe.final_stage.name)
    )
    changed = {name for name in end if not torch.equal(start[name], end[name])}
    head = {name for name in end if name.startswith(recipe.own_score)}
    assert changed & (head or end.keys())  # ALADIN's own alignment head has no parameters


def test_every_objective_has_the_same_start_network_and_budget() -> None:
    recipes = [load_recipe(*each) for each in SUITE if each[0].stem != "aladin"]
    baseline = next(recipe for recipe in recipes if recipe.name == "mh")
    for recipe in recipes:
        assert recipe.model == baseline.model
        assert recipe.data == baseline.data
        assert recipe.stage[0] == baseline.stage[0]
        final, budget = recipe.final_stage, baseline.final_stage
        for setting in ("epochs", "batch_size", "lr", "schedule", "weight_decay", "average_decay"):
            assert getattr(final, setting) == getattr(budget, setting), (recipe.name, setting)


# The papers' own networks and ALADIN's variants: which parts the last stage trains.
TRUNKS = {"image_trunk", "text_trunk"}
TRAINED = {
    "vsepp": {"image_trunk", "text_encoder"},
    "imc-pair": {"image_trunk", "text_encoder"},
    "dbl-baseline": {"matching"},
    "compare/aladin:a-ft": TRUNKS,  # its alignment head has no parameters
    "compare/aladin:d": {"matching"},
    "compare/aladin:t": {"matching"},
    "compare/aladin:t-ft": TRUNKS | {"matching"},
    "compare/aladin:a-ft-d-ft": TRUNKS | {"matching"},
}


@pytest.mark.parametrize("name", TRAINED)
def test_the_last_stage_trains_its_parts_and_the_checkpoint_loads(
    name: str, tiny: Callable[..., Recipe], shared: Path, tmp_path: Path
) -> None:
    file, _, variant = name.partition(":")
    settings = [f"variant={variant}"] if variant else []
    recipe = tiny(recipes_folder() / f"{file}.toml", *settings)
    result = run_recipe(recipe, tmp_path / "run", shared=shared / "stages")
    before, after = (
        load_file(tmp_path / "run" / "stages" / stage.name / "checkpoint" / "model.safetensors")
        for stage in recipe.stage[-2:]
    )
    changed = {part_of(key) for key in after if not torch.equal(before[key], after[key])}
    assert changed == TRAINED[name]
    has_attention = name == "dbl-baseline"
    assert ("attention" in load_checkpoint(result.checkpoint).model.score_names) == has_attention
    for scores in result.validation.values():
        assert ("attention" in scores) == has_attention
