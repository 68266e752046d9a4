"""Planned batches: as the plan has them, from any batch on, whole or in shares."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from aladin_network.encoders.base import TextBatch
from aladin_network.errors import ImageError
from aladin_network.types import NullProgress
from aladin_training.batches.batch import Batch
from aladin_training.batches.dataset import PairDataset, PlannedBatches
from aladin_training.batches.plan import BatchPlan
from aladin_training.config.recipe import load_recipe
from aladin_training.parallel.distributed import BatchShare
from aladin_training.stages.preparation import prepare_run
from tests.training.short_stage import stage_of


@pytest.fixture(scope="module")
def pairs(recipe_path: Path) -> PairDataset:
    train_set = prepare_run(load_recipe(recipe_path), NullProgress()).train_set
    assert isinstance(train_set, PairDataset)
    return train_set


def plan_of(pairs: PairDataset) -> BatchPlan:
    return BatchPlan(pairs.captions_of_photo, pairs.views, stage_of(5, 2), "0:a")


@pytest.fixture(scope="module")
def batches(pairs: PairDataset) -> PlannedBatches:
    return pairs.batches(stage_of(5, 2), "0:a")


def parts(batch: Batch) -> list[torch.Tensor]:
    assert isinstance(batch.images, torch.Tensor) and isinstance(batch.texts, TextBatch)
    return [batch.images, batch.texts.ids, batch.negatives]


def assert_same(ours: Batch, theirs: Batch) -> None:
    for mine, other in zip(parts(ours), parts(theirs), strict=True):
        assert torch.equal(mine, other)


def test_the_batches_are_the_plans(pairs: PairDataset, batches: PlannedBatches) -> None:
    assert batches.batches_per_epoch == 2
    assert batches.digest == pairs.digest
    for epoch in range(2):
        planned = plan_of(pairs).epoch(epoch)
        for ours, rows in zip(batches.epoch(epoch), planned, strict=True):
            assert_same(ours, pairs.batch(rows))


def test_an_epoch_goes_on_from_any_batch(batches: PlannedBatches) -> None:
    unbroken = list(batches.epoch(3))
    for start in range(3):
        for ours, theirs in zip(batches.epoch(3, start), unbroken[start:], strict=True):
            assert_same(ours, theirs)


@pytest.mark.parametrize("world", [2, 3])
def test_shares_put_together_are_the_whole_batch(batches: PlannedBatches, world: int) -> None:
    shares = [batches.epoch(0, share=BatchShare(rank, world)) for rank in range(world)]
    for whole, *own in zip(batches.epoch(0), *shares, strict=True):
        images, _, negatives = parts(whole)
        assert torch.equal(torch.cat([parts(each)[0] for each in own]), images)
        texts = [row for each in own for row in _words(each)]
        assert texts == _words(whole)
        assert all(torch.equal(parts(each)[2], negatives) for each in own)


def _words(batch: Batch) -> list[list[int]]:
    """Return the tokens of each text; how much padding follows depends on the others."""
    assert isinstance(batch.texts, TextBatch)
    rows = zip(batch.texts.ids, batch.texts.mask, strict=True)
    return [ids[mask].tolist() for ids, mask in rows]


def test_a_photo_that_cannot_be_read_any_more_is_an_error_of_its_batch(
    pairs: PairDataset, batches: PlannedBatches, monkeypatch: pytest.MonkeyPatch
) -> None:
    last = plan_of(pairs).epoch(0)[1].photos[0]
    read = type(pairs.inputs.photos).get

    def damaged(self: object, rows: list[int], views: list[int]) -> object:
        if last in rows:
            raise ImageError("photo", "gone")
        return read(self, rows, views)  # type: ignore[arg-type]

    monkeypatch.setattr(type(pairs.inputs.photos), "get", damaged)
    epoch = batches.epoch(0)
    next(epoch)
    with pytest.raises(ImageError, match="photo: gone"):
        next(epoch)
