"""Stages that tune an encoder: exact resume, and each network sees its own encoder's features."""

from __future__ import annotations

import copy
import dataclasses
import json
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.optim import AdamW

import aladin_training.loop
import aladin_training.stage_files
from aladin_network.checkpoint_files import Checkpoint, config_file_of
from aladin_network.encoders.base import Features, TextBatch
from aladin_network.model import AladinModel
from aladin_network.types import NullProgress
from aladin_training.batches.batch import Batch
from aladin_training.batches.plan import BatchPlan, BatchRows
from aladin_training.config.recipe import Recipe, load_recipe
from aladin_training.config.stage import (
    AnchorsConfig,
    StageConfig,
    TaskConfig,
    TuneConfig,
)
from aladin_training.evaluation import encode_records
from aladin_training.losses.triplet import TripletMarginLoss
from aladin_training.stages.preparation import PreparedRun, prepare_run
from aladin_training.stages.run import run_recipe
from aladin_training.stages.setup import set_up_stage
from aladin_training.tasks.frozen import Teacher
from aladin_training.tasks.scores import BatchScores, encode_directly
from tests.training.runs import (
    Earlier,
    InterruptAfter,
    InterruptionError,
    assert_same_weights,
    weights,
)

MODES: dict[str, dict[str, Any]] = {
    "full": {"mode": "full", "lr_decay": 0.5, "checkpointing": True},
    "last": {"mode": "last", "layers": 1},
    "lora": {"mode": "lora", "rank": 2, "dropout": 0.1},
}


def joint_alone(recipe_path: Path, *overrides: str) -> Recipe:
    recipe = load_recipe(recipe_path, overrides)
    return dataclasses.replace(recipe, stage=recipe.stage[:1])


def prepared_with_tuned_text(recipe: Recipe) -> tuple[PreparedRun, Checkpoint]:
    """A run whose text encoder is no longer the one of its stage `joint`."""
    prepared = prepare_run(recipe, NullProgress())
    network = copy.deepcopy(prepared.model).eval()
    before = Checkpoint(network, config_file_of(network), "before")
    generator = torch.Generator().manual_seed(1)
    with torch.no_grad():
        for value in prepared.model.text.encoder.parameters():
            value += 0.1 * torch.randn(value.shape, generator=generator)
    return prepared, before


def of_raw_inputs(model: AladinModel, prepared: PreparedRun, rows: BatchRows) -> BatchScores:
    with torch.inference_mode():
        return BatchScores(model.eval(), prepared.train_set.batch(rows))


def assert_sees_its_own(seen: BatchScores, expected: BatchScores) -> None:
    for score in ("matching", "alignment"):
        # The cache keeps float16.
        torch.testing.assert_close(seen.of(score), expected.of(score), atol=2e-2, rtol=0)


ROWS = BatchRows(photos=[1, 2, 4, 8], captions=[1, 3, 7, 15], views=[0, 1, 0, 1])


@pytest.mark.parametrize("mode", ["full", pytest.param("last", marks=pytest.mark.slow), "lora"])
def test_a_tuned_stage_resumes_exactly_and_leaves_a_plain_checkpoint(
    mode: str, recipe_path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(aladin_training.loop, "SAVE_EVERY_S", 0.0)
    tune = json.dumps({"image_encoder": MODES[mode], "text_encoder": MODES[mode]})
    recipe = joint_alone(recipe_path, f"stage.joint.tune={tune}", "stage.joint.epochs=1")
    run_recipe(recipe, tmp_path / "unbroken")
    with pytest.raises(InterruptionError):
        run_recipe(recipe, tmp_path / "broken", progress=InterruptAfter(1, stage=1))
    run_recipe(recipe, tmp_path / "broken", resume=True)
    assert_same_weights(tmp_path / "broken", tmp_path / "unbroken")
    unbroken = weights(tmp_path / "unbroken")
    start = prepare_run(recipe, NullProgress()).model.state_dict()
    assert start.keys() == unbroken.keys()
    changed = {
        name.partition(".encoder.model.")[2]
        for name, value in unbroken.items()
        if ".encoder.model." in name and not torch.equal(value.float(), start[name])
    }
    # Both encoders have one layer.
    assert ("embeddings.LayerNorm.weight" in changed) == (mode == "full")
    assert ("layernorm.weight" in changed) == (mode != "lora")
    assert {"layers.0.mlp.fc1.weight", "encoder.layer.0.attention.self.query.weight"} <= changed
    assert ("layers.0.mlp.fc1.bias" in changed) == (mode != "lora")


@pytest.mark.parametrize("tune", [{}, {"text_encoder": {"mode": "last", "layers": 1}}])
def test_a_teacher_from_before_a_tuned_stage_sees_its_own_encoders_features(
    tune: dict[str, Any], recipe_path: Path, tmp_path: Path
) -> None:
    recipe = load_recipe(
        recipe_path,
        [
            "stage.student.teacher=joint",
            "stage.student.train=null",
            f"stage.student.tune={json.dumps(tune)}",
        ],
    )
    prepared, before = prepared_with_tuned_text(recipe)
    trainer = set_up_stage(
        recipe, recipe.stage[1], prepared, tmp_path, Earlier(joint=before), NullProgress()
    )
    train_set = prepared.train_set.read_by(prepared.model, {"joint": before.model})
    batch = train_set.batch(ROWS)
    seen = next(trainer.epoch(0))
    for each in (batch, seen):
        theirs = each.for_network("joint")
        assert theirs.images is each.images  # the image encoder is the same
        assert isinstance(each.images, Features)
        assert isinstance(theirs.texts, Features)
        assert isinstance(each.texts, TextBatch if tune else Features)
        if isinstance(each.texts, Features):
            assert (each.texts.states - theirs.texts.states).abs().max() > 0.1
    teacher = Teacher(before, "alignment", "joint")
    expected = of_raw_inputs(before.model, prepared, ROWS)
    found = teacher.scores(batch, encode_directly)
    torch.testing.assert_close(found, expected.of("alignment"), atol=2e-2, rtol=0)
    own = of_raw_inputs(prepared.model, prepared, ROWS)
    assert_sees_its_own(BatchScores(prepared.model, batch), own)
    # The two networks really disagree: features of the one would not do for the other.
    assert (own.of("alignment") - expected.of("alignment")).abs().max() > 0.1


def test_anchors_see_their_own_encoders_features(recipe_path: Path, tmp_path: Path) -> None:
    stage = StageConfig(
        name="last",
        tasks={"matching_boosting": TaskConfig(loss="boosting")},
        anchors=AnchorsConfig(scenario="online", stages=("joint", "random")),
        batch_size=4,
    )
    recipe = load_recipe(recipe_path)
    prepared, before = prepared_with_tuned_text(recipe)
    trainer = set_up_stage(recipe, stage, prepared, tmp_path, Earlier(joint=before), NullProgress())
    batch = next(trainer.epoch(0))
    earlier, anew, target = (branch.eval() for branch in trainer.task.branches)
    raw = _raw_batch(prepared, stage)
    for branch in (earlier, anew, target):
        with torch.inference_mode():
            expected = BatchScores(branch.model, raw)
        assert_sees_its_own(branch.scores(batch, encode_directly), expected)
    # New weights are new weights of what is trained; a frozen encoder is what it is by now.
    for name, value in anew.model.text.encoder.named_parameters():
        assert torch.equal(value, prepared.model.text.encoder.get_parameter(name))
    assert not torch.equal(
        anew.model.text.trunk.projection.weight, prepared.model.text.trunk.projection.weight
    )

    offline = dataclasses.replace(
        stage, anchors=AnchorsConfig(scenario="offline", stages=("joint",))
    )
    trainer = set_up_stage(
        recipe, offline, prepared, tmp_path, Earlier(joint=before), NullProgress()
    )
    batch = next(trainer.epoch(0))
    (anchor,) = trainer.task.branches[0].scores(batch, encode_directly).anchors
    with torch.inference_mode():
        expected = BatchScores(before.model, _raw_batch(prepared, stage))
    assert_sees_its_own(anchor, expected)


def test_a_momentum_anchor_follows_a_tuned_encoder_and_reads_what_it_reads(
    recipe_path: Path, tmp_path: Path
) -> None:
    stage = StageConfig(
        name="last",
        tasks={"matching_boosting": TaskConfig(loss="boosting")},
        anchors=AnchorsConfig(scenario="momentum", decays=(0.0,)),
        tune={"text_encoder": TuneConfig(mode="lora", rank=2)},
        batch_size=4,
        lr=0.05,
    )
    recipe = load_recipe(recipe_path)
    prepared = prepare_run(recipe, NullProgress())
    trainer = set_up_stage(recipe, stage, prepared, tmp_path, Earlier(), NullProgress())
    trainer.start_epoch(0)
    batches = trainer.epoch(0)
    trainer.train_step(next(batches))
    batch = next(batches)
    task = trainer.task.branches[0].eval()
    # A decay of 0: after one step of many the anchor is the target, adapters included.
    seen = task.scores(batch, encode_directly)
    torch.testing.assert_close(
        seen.anchors[0].of("matching"), seen.of("matching"), atol=1e-4, rtol=0
    )
    b = prepared.model.text.encoder.state_dict()
    assert max(v.abs().max() for n, v in b.items() if "lora_B" in n) > 1e-3


def test_a_split_is_encoded_by_each_network_from_its_own_features(recipe_path: Path) -> None:
    prepared, before = prepared_with_tuned_text(load_recipe(recipe_path))
    validation_set = prepared.validation_set
    found = [validation_set.encode(model.eval()) for model in (before.model, prepared.model)]
    for model, (images, texts) in zip((before.model, prepared.model), found, strict=True):
        expected = encode_records(model, validation_set.records, NullProgress())
        for own, other in zip((images, texts), expected, strict=True):
            torch.testing.assert_close(own.embedding, other.embedding, atol=1e-2, rtol=0)
    assert torch.equal(found[0][0].embedding, found[1][0].embedding)
    assert (found[0][1].embedding - found[1][1].embedding).abs().max() > 0.1


def test_the_last_layer_learns_as_in_a_loop_by_hand(recipe_path: Path, tmp_path: Path) -> None:
    recipe = joint_alone(
        recipe_path,
        'stage.joint.tune={"text_encoder": {"mode": "last", "layers": 1}}',
        'stage.joint.lr_scale={"text_encoder": 0.5}',
        'stage.joint.schedule={"shape": "constant"}',
        'stage.joint.tasks={"matching": {"loss": "triplet"}}',
        'stage.joint.train=["text_encoder"]',
        "stage.joint.clip_norm=1000",
        "model.matching.dropout=0",
        "model.text_tower.trunk.dropout=0",
        "model.text_encoder.architecture.hidden_dropout_prob=0",
        "model.text_encoder.architecture.attention_probs_dropout_prob=0",
    )
    prepared = prepare_run(recipe, NullProgress())
    by_hand = copy.deepcopy(prepared.model).eval()
    stage = recipe.stage[0]
    trainer = set_up_stage(recipe, stage, prepared, tmp_path, Earlier(), NullProgress())
    trainer.start_epoch(0)
    batches = list(trainer.epoch(0))
    by_hand.text.encoder.frozen = False
    layer = by_hand.text.encoder.get_submodule("model.encoder.layer.0").requires_grad_(True)
    optimizer = AdamW(layer.parameters(), lr=0.5 * stage.lr, weight_decay=0)
    for batch in batches[:2]:
        trainer.train_step(batch)
        images, texts = by_hand.encode_images(batch.images), by_hand.encode_texts(batch.texts)
        scores = images.embedding @ texts.embedding.T
        loss = TripletMarginLoss()(scores, batch.negatives)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    start = prepare_run(recipe, NullProgress()).model
    for name, value in prepared.model.named_parameters():
        torch.testing.assert_close(value, by_hand.get_parameter(name), atol=1e-5, rtol=0)
        learnt = name.startswith("text.encoder.model.encoder.layer.0.")
        if not learnt:
            assert torch.equal(value, start.get_parameter(name)), name
    moved = prepared.model.get_parameter("text.encoder.model.encoder.layer.0.output.dense.weight")
    assert (
        moved - start.get_parameter("text.encoder.model.encoder.layer.0.output.dense.weight")
    ).abs().max() > 1e-4


def _raw_batch(prepared: PreparedRun, stage: StageConfig) -> Batch:
    """The first batch of a stage's first epoch as photos and captions."""
    pairs = prepared.train_set
    plan = BatchPlan(pairs.captions_of_photo, pairs.views, stage, f"0:{stage.name}")
    return pairs.batch(plan.epoch(0)[0])


def test_steps_on_cached_states_are_those_on_photos(recipe_path: Path, tmp_path: Path) -> None:
    resnet = {
        "model_type": "resnet",
        "embedding_size": 8,
        "hidden_sizes": [8, 16],
        "depths": [1, 1],
        "layer_type": "basic",
    }

    def trained(cached: bool) -> dict[str, torch.Tensor]:
        tune = {"mode": "last", "layers": 1, "cached": cached}
        recipe = joint_alone(
            recipe_path,
            f"stage.joint.tune={json.dumps({'image_encoder': tune})}",
            f"model.image_encoder.architecture={json.dumps(resnet)}",
            "model.image_encoder.pyramid=[1]",
            "model.image_tower.aggregate=mean",
            "stage.joint.epochs=2",
        )
        run_recipe(recipe, tmp_path / str(cached))
        return weights(tmp_path / str(cached))

    found, expected = trained(True), trained(False)
    assert found.keys() == expected.keys()
    for name, value in expected.items():
        # States are kept in float16.
        torch.testing.assert_close(found[name], value, atol=2e-3, rtol=2e-2, msg=name)
    start = json.loads((tmp_path / "True" / "recipe.json").read_text())
    assert start["stage"][0]["tune"]["image_encoder"]["cached"] is True
