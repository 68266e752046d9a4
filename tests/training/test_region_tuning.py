"""Stages that tune a network of regions: its one BERT, in the text encoder, reads both sides."""

from __future__ import annotations

import copy
import dataclasses
import json
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file

from aladin_network.checkpoint import load_checkpoint
from aladin_network.errors import ConfigError
from aladin_network.types import NullProgress
from aladin_training.adapters.parts import check_fine_tuning, start_fine_tuning
from aladin_training.batches.plan import BatchRows
from aladin_training.config.tune import TuneConfig
from aladin_training.data.regions import open_regions
from aladin_training.evaluation import encode_records
from aladin_training.stages.preparation import prepare_run
from aladin_training.stages.run import run_recipe
from aladin_training.tasks.joint import JointTask
from tests.training.region_data import recipe_of, write_regions

LAST = {"mode": "last", "layers": 1, "checkpointing": True}
LORA = {"mode": "lora", "rank": 2}
NO_DROPOUT = [
    "model.image_encoder.architecture.dropout=0",
    "model.text_encoder.architecture.hidden_dropout_prob=0",
    "model.text_encoder.architecture.attention_probs_dropout_prob=0",
    "model.image_tower.trunk.dropout=0",
    "model.text_tower.trunk.dropout=0",
    "model.matching.dropout=0",
]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("regions")
    write_regions(folder)
    return folder


@pytest.mark.parametrize(
    "tuned", [pytest.param(LAST, id="last", marks=pytest.mark.slow), pytest.param(LORA, id="lora")]
)
def test_both_sides_see_the_tuned_bert_in_the_stage_and_after_it(
    tuned: dict[str, Any], folder: Path, tmp_path: Path
) -> None:
    tune = json.dumps({"text_encoder": tuned | {"lr_decay": 0.9}})
    recipe = recipe_of(folder, f"stage.joint.tune={tune}", "stage.joint.lr=0.01", frozen=True)
    after = dataclasses.replace(recipe.stage[0], name="after", tune={})
    recipe = dataclasses.replace(recipe, stage=(*recipe.stage, after))
    start = prepare_run(recipe, NullProgress())
    stages = run_recipe(recipe, tmp_path / "run").checkpoint.parent / "stages"
    before = start.model.state_dict()
    joint, last = (
        load_file(stages / name / "checkpoint" / "model.safetensors") for name in ("joint", "after")
    )
    assert before.keys() == joint.keys() == last.keys()
    changed = {name for name, value in joint.items() if not torch.equal(value, before[name])}
    in_encoders = {name for name in changed if ".encoder." in name}
    assert all(name.startswith("text.encoder.model.encoder.layer.0.") for name in in_encoders)
    assert any(name.endswith("attention.self.query.weight") for name in in_encoders)
    assert any(name.endswith("LayerNorm.weight") for name in in_encoders) == (tuned is LAST)
    # The stage after it trains what lies above, on features of the BERT as it is by now.
    moved = {name for name, value in last.items() if not torch.equal(value, joint[name])}
    assert moved
    assert not any(".encoder." in name for name in moved)
    model = load_checkpoint(stages / "after" / "checkpoint").model.eval()
    validation = start.validation_set
    store = open_regions(folder / "features.tsv", folder / "labels.json")
    expected = encode_records(model, validation.records, NullProgress(), store)
    for own, other in zip(validation.read_by(model).encode(model), expected, strict=True):
        torch.testing.assert_close(own.embedding, other.embedding, atol=1e-2, rtol=0)
    stale = encode_records(start.model.eval(), validation.records, NullProgress(), store)
    assert (stale[0].embedding - expected[0].embedding).abs().max() > 0.05


@pytest.mark.parametrize("mode", ["last", "lora"])
def test_the_gradient_of_the_bert_is_that_of_both_passes(mode: str, folder: Path) -> None:
    recipe = recipe_of(folder, *NO_DROPOUT, frozen=True)
    prepared = prepare_run(recipe, NullProgress())
    model, plain = prepared.model, copy.deepcopy(prepared.model)
    tune = {"text_encoder": TuneConfig(**(LAST if mode == "last" else LORA))}
    start_fine_tuning(model, tune)
    task = JointTask(model, dataclasses.replace(recipe.stage[0], tune=tune))
    plain.text.encoder.frozen = False  # and so the image encoder, too
    by_hand = JointTask(plain, recipe.stage[0])
    plain.requires_grad_(True)
    rows = BatchRows(photos=[0, 1, 2, 3], captions=[0, 2, 4, 6], views=[0] * 4)
    batch = prepared.train_set.read_by(model).batch(rows)
    for each in (task, by_hand):
        each.start_epoch(0)
        each(batch).total.backward()
    query = "text.encoder.model.encoder.layer.0.attention.self.query."
    whole = plain.get_parameter(f"{query}weight").grad
    assert whole is not None
    if mode == "last":
        found = model.get_parameter(f"{query}weight").grad
    else:  # B is 0, and its gradient that of the matrix, seen through A
        a = model.get_parameter(f"{query}lora_A.default.weight")
        found = model.get_parameter(f"{query}lora_B.default.weight").grad
        whole = 8 * whole @ a.T  # alpha 16, rank 2
    torch.testing.assert_close(found, whole, atol=1e-5, rtol=1e-4)


def test_layers_are_those_of_the_text_encoder(folder: Path) -> None:
    model = prepare_run(recipe_of(folder, frozen=True), NullProgress()).model
    with pytest.raises(ConfigError, match=r"tune\.image_encoder: .* no list of layers"):
        check_fine_tuning(model, {"image_encoder": TuneConfig(mode="last", layers=1)})
    check_fine_tuning(model, {"image_encoder": TuneConfig(), "text_encoder": TuneConfig(**LAST)})


def test_regions_have_no_new_crops(folder: Path) -> None:
    recipe = recipe_of(folder)
    stage = dataclasses.replace(recipe.stage[0], new_crops=0.5)
    cropped = dataclasses.replace(recipe, stage=(stage, *recipe.stage[1:]))
    with pytest.raises(ConfigError, match="new_crops apply to photos"):
        prepare_run(cropped, NullProgress())
