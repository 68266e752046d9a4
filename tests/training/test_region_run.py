"""A network of regions, trained and evaluated from tables of regions; there are no photos."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

from aladin_network.checkpoint import load_checkpoint
from aladin_network.errors import ConfigError, InputError, RegionError
from aladin_network.photos.regions import RegionSet
from aladin_network.types import NullProgress
from aladin_training.config.defaults import Lists
from aladin_training.data import read_records
from aladin_training.data.regions import RegionStore, open_regions
from aladin_training.data.regions.checked import CheckedRegions
from aladin_training.evaluation import encode_records, evaluate_checkpoint
from aladin_training.mining.miner import mine_file
from aladin_training.stages.preparation import prepare_run
from aladin_training.stages.run import RunResult, run_recipe
from tests.tensors import encode_images
from tests.training.region_data import recipe_of, write_regions


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
    ("overrides", "error", "reason"),
    [
        (["data.mirror=true"], ConfigError, "mirror and crops apply to photos"),
        (["data.crops=2"], ConfigError, "mirror and crops apply to photos"),
        (["data.regions=null"], ConfigError, "region_labels: expected regions as well"),
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
