"""The papers' own small networks, each trained for an epoch of pictures."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

from aladin_network.checkpoint import load_checkpoint
from aladin_training.adapters.parts import part_of
from aladin_training.config.recipe import load_recipe
from aladin_training.config.shipped import recipes_folder
from aladin_training.stages.run import run_recipe

RECIPES = recipes_folder()
# What the last stage trains.
TRAINED = {
    "vsepp": {"image_trunk", "text_encoder"},
    "imc-pair": {"image_trunk", "text_encoder"},
    "dbl-baseline": {"matching"},
}


@pytest.mark.parametrize("name", TRAINED)
def test_network_trains_and_its_checkpoint_loads(
    name: str, recipe_path: Path, tmp_path: Path
) -> None:
    tiny = load_recipe(recipe_path)
    image = {
        "architecture": tiny.model.image_encoder.architecture,
        "preprocessing": {"height_px": 32, "width_px": 32},
        "frozen": True,
    }
    stages = [stage.name for stage in load_recipe(RECIPES / f"{name}.toml").stage]
    recipe = load_recipe(
        RECIPES / f"{name}.toml",
        [
            f"data.source={tiny.data.source}",
            f"data.cache={tmp_path / 'cache'}",
            "data.crops=0",
            "precision=float32",
            f"model.image_encoder={json.dumps(image)}",
            "model.image_tower.trunk.width=16",
            "model.text_encoder.architecture.hidden_size=16",
            "stage_defaults.batch_size=8",
            *(f"stage.{stage}.epochs=1" for stage in stages),
            *(f"stage.{stage}.validate_every_epochs=1" for stage in stages),
        ],
    )
    result = run_recipe(recipe, tmp_path / "run")
    before, after = (
        load_file(tmp_path / "run" / "stages" / stage / "checkpoint" / "model.safetensors")
        for stage in stages[-2:]
    )
    changed = {part_of(key) for key in after if not torch.equal(before[key], after[key])}
    assert changed == TRAINED[name]
    model = load_checkpoint(result.checkpoint).model
    assert ("attention" in model.score_names) == (name == "dbl-baseline")
    for scores in result.validation.values():
        assert ("attention" in scores) == (name == "dbl-baseline")
