"""A network of regions, trained, tuned and evaluated from tables; there are no photos."""

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
from aladin_network.errors import ConfigError, InputError, RegionError
from aladin_network.photos.regions import RegionSet
from aladin_network.types import NullProgress
from aladin_training.adapters.parts import check_fine_tuning, start_fine_tuning
from aladin_training.batches.plan import BatchRows
from aladin_training.config.defaults import Lists
from aladin_training.config.tune import TuneConfig
from aladin_training.data import read_records
from aladin_training.data.regions import RegionStore, open_regions
from aladin_training.data.regions.store import CheckedRegions
from aladin_training.evaluation import encode_records, evaluate_checkpoint
from aladin_training.mining.miner import mine_file
from aladin_training.stages.preparation import prepare_run
from aladin_training.stages.run import RunResult, run_recipe
from aladin_training.tasks.joint import JointTask
from tests.tensors import encode_images
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


@pytest.fixture(scope="module")
def trained(folder: Path, tmp_path_factory: pytest.TempPathFactory) -> RunResult:
    """A run of two steps."""
    return run_recipe(recipe_of(folder), tmp_path_factory.mktemp("run") / "run")


@pytest.fixture(scope="module")
def store(folder: Path) -> RegionStore:
    return open_regions(folder / "features.tsv", folder / "labels.json")


def test_two_steps_from_a_table(folder: Path, trained: RunResult) -> None:
    timing = trained.checkpoint.parent / "stages" / "joint" / "timing.json"
    assert json.loads(timing.read_text())["steps"] == 2
    before = prepare_run(recipe_of(folder), NullProgress()).model.state_dict()
    after = load_checkpoint(trained.checkpoint).model.state_dict()
    for part in ("embedding.weight", "word_embeddings.weight"):
        (name,) = (each for each in after if each.endswith(part))
        assert not torch.equal(before[name], after[name])


def test_each_photo_is_scored_by_its_own_regions(
    folder: Path, trained: RunResult, store: RegionStore
) -> None:
    checkpoint = load_checkpoint(trained.checkpoint)
    records = read_records(folder / "captions.jsonl", "val", require_photos=False)
    evaluation = evaluate_checkpoint(checkpoint, records, regions=store)
    for name, metrics in trained.validation["joint"].items():
        assert evaluation.metrics()[name].rsum == pytest.approx(metrics.rsum)
    encoder = checkpoint.model.image.encoder
    images, texts = encode_records(checkpoint.model, records, NullProgress(), store)
    for row, number in enumerate(range(8, 12)):
        alone = encode_images(checkpoint.model, [encoder.preprocess(store.read(str(number)))])
        assert int(images.mask[row].sum()) == int(alone.mask.sum()) == 1 + number % 3
        expected = checkpoint.model.scores("matching", alone, texts)[0]
        torch.testing.assert_close(evaluation.matching_scores[row], expected, atol=1e-5, rtol=1e-4)


def test_a_frozen_network_of_regions_reads_each_photo_once(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    recipe = recipe_of(folder, f"data.cache={tmp_path}", frozen=True)
    read: list[str] = []
    real = CheckedRegions.read

    def noted(store: CheckedRegions, key: str) -> RegionSet:
        read.append(key)
        return real(store, key)

    monkeypatch.setattr(CheckedRegions, "read", noted)
    cached: list[torch.Tensor] = []
    for expected in (range(8), ()):
        prepared = prepare_run(recipe, NullProgress())
        read.clear()
        inputs = prepared.train_set.read_by(prepared.model).inputs
        cached += [inputs.photos.get(range(8), [0] * 8).states for _ in range(2)]
        assert sorted(read) == [str(number) for number in expected]
    for states in cached:
        torch.testing.assert_close(states, cached[0], atol=0, rtol=0)


def test_negatives_are_mined_from_regions(
    folder: Path, tmp_path: Path, trained: RunResult, store: RegionStore
) -> None:
    out = tmp_path / "negatives.safetensors"
    checkpoint = load_checkpoint(trained.checkpoint)
    records = read_records(folder / "captions.jsonl", "train", require_photos=False)
    lists = Lists("matching", 3, 2)
    mine_file(checkpoint, records, out, cache=tmp_path / "cache", lists=lists, regions=store)
    images, texts = encode_records(checkpoint.model, records, NullProgress(), store)
    scores = images.embedding @ texts.embedding.T
    own = torch.arange(8)[:, None] == torch.arange(8).repeat_interleave(2)
    found = load_file(out)["texts"].long()
    best = scores.masked_fill(own, -torch.inf).topk(3, dim=1).values
    torch.testing.assert_close(scores.gather(1, found), best, atol=1e-5, rtol=1e-4)


@pytest.mark.parametrize(
    "tuned", [pytest.param(LAST, id="last", marks=pytest.mark.slow), pytest.param(LORA, id="lora")]
)
def test_both_sides_see_the_tuned_bert_in_the_stage_and_after_it(
    tuned: dict[str, Any], folder: Path, tmp_path: Path, store: RegionStore
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


@pytest.mark.parametrize(
    ("overrides", "error", "reason"),
    [
        (["data.mirror=true"], ConfigError, "mirror and crops apply to photos"),
        (["stage.joint.new_crops=0.5"], ConfigError, "new_crops apply to photos"),
        (
            ["data.regions=null", "data.region_labels=null"],
            InputError,
            "this network reads regions, not photos: expected ready-made ones",
        ),
        (
            ["model.image_encoder.architecture.region_dim=9"],
            RegionError,
            "expected 9 numbers a region, or 3 with boxes, got 4",
        ),
    ],
)
def test_recipes_that_do_not_fit_their_data(
    folder: Path, tmp_path: Path, overrides: list[str], error: type[Exception], reason: str
) -> None:
    if "data.region_labels=null" in overrides:
        source = tmp_path / "captions.jsonl"
        source.write_text((folder / "captions.jsonl").read_text())
        for number in range(12):
            (tmp_path / f"COCO_{number:06d}.jpg").touch()
        overrides = [*overrides, f"data.source={source}"]
    with pytest.raises(error, match=reason):
        run_recipe(recipe_of(folder, *overrides), tmp_path / "run")
    assert not (tmp_path / "run").exists()


def test_photos_without_regions_are_told_up_front(folder: Path, tmp_path: Path) -> None:
    lines = (folder / "features.tsv").read_text().splitlines()
    (tmp_path / "features.tsv").write_text("\n".join(lines[2:10]) + "\n")
    recipe = recipe_of(folder, f"data.regions={tmp_path / 'features.tsv'}")
    with pytest.raises(RegionError, match=r"4 of 12 photos have no regions: 'COCO_000000\.jpg'"):
        run_recipe(recipe, tmp_path / "run")
    assert not (tmp_path / "run").exists()
