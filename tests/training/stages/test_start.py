"""A run that begins with the network of a checkpoint."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path

import pytest
import torch

from aladin_network.checkpoint import load_checkpoint
from aladin_network.checkpoint_files import read_model_id
from aladin_network.errors import CheckpointError, ConfigError
from aladin_network.types import NullProgress
from aladin_training.config.recipe import load_recipe
from aladin_training.config.shipped import recipes_folder
from aladin_training.stages.preparation import prepare_run, with_recorded_ids
from aladin_training.stages.run import is_run_of, run_recipe


@pytest.fixture
def start_recipe(tmp_path: Path, data_set: Path, tiny_checkpoint: Path) -> Path:
    """A recipe of one stage that tunes both encoders of a checkpoint by adapters."""
    path = tmp_path / "start.toml"
    path.write_text(f"""
name = "start"
precision = "float32"
threads = 1
start = "{tiny_checkpoint}"
[data]
source = "{data_set}"
cache = "{tmp_path / "cache"}"
[model.text_encoder]
frozen = true
[[stage]]
name = "tuned"
epochs = 1
batch_size = 6
tune = {{ text_encoder = {{ mode = "lora", rank = 2 }} }}
[stage.tasks.matching]
loss = "infonce"
""")
    return path


def test_the_run_begins_with_the_checkpoints_network_and_tokenizer(
    start_recipe: Path, tiny_checkpoint: Path, tmp_path: Path
) -> None:
    recipe = load_recipe(start_recipe)
    assert recipe.model is None
    model = prepare_run(recipe, NullProgress()).model
    expected = load_checkpoint(tiny_checkpoint).model
    assert model.text.encoder.frozen
    assert model.config.text_encoder.frozen
    assert not model.image.encoder.frozen  # as the checkpoint says
    assert model.text.encoder.tokenizer.to_str() == expected.text.encoder.tokenizer.to_str()
    for name, value in expected.state_dict().items():
        assert torch.equal(model.state_dict()[name], value), name
    out = tmp_path / "out"
    run_recipe(recipe, out)
    found = load_checkpoint(out / "checkpoint")
    told = json.loads(found.provenance.recipe)["start"]
    assert told["model_id"] == read_model_id(tiny_checkpoint)
    assert is_run_of(out, recipe)
    before = expected.text.encoder.state_dict()
    changed = {
        name.rpartition(".")[2]
        for name, value in found.model.text.encoder.state_dict().items()
        if not torch.equal(value, before[name])
    }
    assert changed == {"weight"}


def test_a_run_is_not_resumed_from_another_checkpoint_in_the_same_place(
    start_recipe: Path, tiny_checkpoint: Path, tmp_path: Path
) -> None:
    recipe = load_recipe(start_recipe)
    assert recipe.start is not None
    model_id = read_model_id(tiny_checkpoint)
    known = with_recorded_ids(recipe)
    assert known.start == dataclasses.replace(recipe.start, model_id=model_id)
    assert with_recorded_ids(known) == known
    (tmp_path / "recipe.json").write_text(json.dumps(dataclasses.asdict(known)))
    assert is_run_of(tmp_path, recipe)
    other = dataclasses.replace(recipe.start, model_id="0" * 64)
    with pytest.raises(ConfigError, match=f"holds the model {model_id[:12]}, expected 0000"):
        with_recorded_ids(dataclasses.replace(recipe, start=other))


@pytest.mark.parametrize(
    ("override", "message"),
    [
        ("model.matching.layers=0", "model.matching: the network is that of the start"),
        ("model.text_encoder.max_tokens=5", "model.text_encoder.max_tokens: the network is that"),
        ("model.text_encoder.frozen=maybe", "frozen"),
        ("start=null", "model.image_encoder: Field required"),
        ("start=nowhere", "nowhere"),
        ('stage.tuned.tune.text_encoder.targets=["nowhere"]', "no matrix is named 'nowhere'"),
    ],
)
def test_faults_are_named_and_leave_no_folder(
    override: str, message: str, start_recipe: Path, tmp_path: Path
) -> None:
    with pytest.raises((ConfigError, CheckpointError), match=message):
        run_recipe(load_recipe(start_recipe, [override]), tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_the_shipped_recipe_tunes_a_checkpoint(
    data_set: Path, tiny_checkpoint: Path, tmp_path: Path
) -> None:
    recipe = load_recipe(
        recipes_folder() / "finetune-clip.toml",
        [
            f"start={tiny_checkpoint}",
            f"data.source={data_set}",
            f"data.cache={tmp_path / 'cache'}",
            "precision=float32",
            "threads=1",
            *(f"stage.{name}.epochs=1" for name in ("heads", "tuned")),
            *(f"stage.{name}.batch_size=6" for name in ("heads", "tuned")),
            "stage.tuned.chunk_size=4",
        ],
    )
    run_recipe(recipe, tmp_path / "out")
    start = load_checkpoint(tiny_checkpoint).model.state_dict()
    heads, tuned = (
        load_checkpoint(tmp_path / "out" / "stages" / name / "checkpoint").model.state_dict()
        for name in ("heads", "tuned")
    )
    assert start.keys() == heads.keys() == tuned.keys()
    encoders = [name for name in start if ".encoder.model." in name]
    assert all(torch.equal(heads[name], start[name]) for name in encoders)
    changed = [name for name in encoders if not torch.equal(tuned[name], start[name])]
    # Both networks' one layer: four matrices of attention and two of the feed-forward block.
    assert len(changed) == 12
    assert all(".layer.0." in name or ".layers.0." in name for name in changed)
