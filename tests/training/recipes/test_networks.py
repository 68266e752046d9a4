"""The papers' own networks and ALADIN's variants, tiny: which parts the last stage trains."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

from aladin_network.checkpoint import load_checkpoint
from aladin_training.adapters.parts import part_of
from aladin_training.config.recipe import Recipe
from aladin_training.config.shipped import recipes_folder
from aladin_training.stages.run import run_recipe

TRUNKS = {"image_trunk", "text_trunk"}
TRAINED = {
    "vsepp": {"image_trunk", "text_encoder"},
    "imc-pair": {"image_trunk", "text_encoder"},
    "dbl-baseline": {"matching"},
    "aladin-a-ft": TRUNKS | {"alignment"},
    "aladin-d": {"matching"},
    "aladin-t": {"matching"},
    "aladin-t-ft": TRUNKS | {"matching"},
    "aladin-a-ft-d-ft": TRUNKS | {"alignment", "matching"},
}


@pytest.mark.parametrize("name", TRAINED)
def test_the_last_stage_trains_its_parts_and_the_checkpoint_loads(
    name: str, tiny: Callable[..., Recipe], shared: Path, tmp_path: Path
) -> None:
    recipe = tiny(recipes_folder() / f"{name}.toml")
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
