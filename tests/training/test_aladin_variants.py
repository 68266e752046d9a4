"""The five variants of ALADIN, each trained for an epoch: what its last stage trains."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

from aladin_training.adapters.parts import part_of
from aladin_training.config.recipe import load_recipe
from aladin_training.config.shipped import recipes_folder
from aladin_training.stages.run import run_recipe

RECIPES = recipes_folder()
TRUNKS = {"image_trunk", "text_trunk"}
TRAINED = {
    "a-ft": TRUNKS | {"alignment"},
    "d": {"matching"},
    "t": {"matching"},
    "t-ft": TRUNKS | {"matching"},
    "a-ft-d-ft": TRUNKS | {"alignment", "matching"},
}


def overrides(recipe_path: Path, variant: str, cache: Path) -> list[str]:
    """Put the tiny data set and random tiny encoders in the place of Flickr8k's."""
    tiny = load_recipe(recipe_path)
    image = {
        "architecture": tiny.model.image_encoder.architecture,
        "preprocessing": {"height_px": 32, "width_px": 32},
        "frozen": True,
    }
    text = {
        "architecture": tiny.model.text_encoder.architecture,
        "max_tokens": 16,
        "frozen": True,
    }
    stages = [stage.name for stage in load_recipe(RECIPES / f"aladin-{variant}.toml").stage]
    return [
        f"data.source={tiny.data.source}",
        f"data.cache={cache}",
        "data.crops=0",
        "precision=float32",
        f"model.image_encoder={json.dumps(image)}",
        f"model.text_encoder={json.dumps(text)}",
        *(f"stage.{name}.epochs=1" for name in stages),
        *(f"stage.{name}.batch_size=8" for name in stages),
    ]


@pytest.mark.parametrize("variant", TRAINED)
def test_last_stage_trains_the_variant_s_parts(
    variant: str, recipe_path: Path, tmp_path: Path
) -> None:
    recipe = load_recipe(
        RECIPES / f"aladin-{variant}.toml", overrides(recipe_path, variant, tmp_path / "cache")
    )
    run_recipe(recipe, tmp_path / "run")
    before, after = (
        load_file(tmp_path / "run" / "stages" / stage.name / "checkpoint" / "model.safetensors")
        for stage in recipe.stage[-2:]
    )
    changed = {part_of(name) for name in after if not torch.equal(before[name], after[name])}
    assert changed == TRAINED[variant]
