"""The comparison's recipes: what the issue of comparing fairly asks of them, and that all train."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

from aladin_training.config.recipe import Recipe, load_recipe
from aladin_training.config.shipped import recipes_folder
from aladin_training.demo.scenes import draw_data_set
from aladin_training.stages.run import run_recipe

SUITE = sorted(
    path for path in (recipes_folder() / "compare").glob("*.toml") if not path.stem.startswith("_")
)


@pytest.fixture(scope="module")
def scenes(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("scenes")
    return draw_data_set(folder, scenes=32, val_scenes=8, test_scenes=8, captions=2, size_px=32)


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("shared")


def tiny(path: Path, recipe_path: Path, scenes: Path, shared: Path) -> Recipe:
    """Put the demo's scenes and random tiny encoders in the place of Flickr8k's."""
    network = load_recipe(recipe_path).model
    image = {
        "architecture": network.image_encoder.architecture,
        "preprocessing": {"height_px": 32, "width_px": 32},
        "frozen": True,
    }
    text = {"architecture": network.text_encoder.architecture, "frozen": True}
    names = [stage.name for stage in load_recipe(path).stage]
    changes = [
        f"data.source={scenes}",
        f"data.cache={shared / 'cache'}",
        "data.crops=0",
        "precision=float32",
        f"model.image_encoder={json.dumps(image)}",
        f"model.text_encoder={json.dumps(text)}",
        "tokenizer.vocabulary_size=300",
    ]
    for tower in ("image_tower", "text_tower"):
        changes += [f"model.{tower}.trunk.width=16", f"model.{tower}.trunk.feedforward=16"]
    for name in names:
        changes += [f"stage.{name}.epochs=1", f"stage.{name}.batch_size=8"]
    return load_recipe(path, changes)


@pytest.mark.parametrize("path", SUITE, ids=lambda path: path.stem)
def test_recipe_trains_on_the_demo_s_scenes(
    path: Path, recipe_path: Path, scenes: Path, shared: Path, tmp_path: Path
) -> None:
    recipe = tiny(path, recipe_path, scenes, shared)
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
    assert any(name.startswith(recipe.own_score) for name in changed)


def test_the_suite_holds_what_it_is_to_compare() -> None:
    names = {path.stem for path in SUITE}
    assert {"mh", "sh"} <= names
    assert {
        f"{scenario}-{form}" for scenario in ("oas", "oss", "mss") for form in ("rm", "am")
    } <= names
    assert {"aoq-triplet", "aoq-quintuplet", "aoq-adaptive", "imc-cos", "imc-l1"} <= names
    assert {f"aladin-{name}" for name in ("t", "d", "t-ft", "a-ft", "a-ft-d-ft")} <= names
    assert len([name for name in names if name.startswith("goal-")]) == 3
    assert "goal-cir-sig-ms" in names


def test_every_objective_has_the_same_start_network_and_budget() -> None:
    recipes = [load_recipe(path) for path in SUITE]
    baseline = next(recipe for recipe in recipes if recipe.name == "mh")
    for recipe in recipes:
        assert recipe.name in {path.stem for path in SUITE}
        assert recipe.model == baseline.model
        assert recipe.data == baseline.data
        assert recipe.stage[0] == baseline.stage[0]
        final, budget = recipe.final_stage, baseline.final_stage
        for setting in ("epochs", "batch_size", "lr", "schedule", "weight_decay", "average_decay"):
            assert getattr(final, setting) == getattr(budget, setting), (recipe.name, setting)
