"""Captions with one word exchanged, as the batches of a stage show them."""

from __future__ import annotations

import random
from pathlib import Path

import torch

from aladin_network.photos.files import PhotoFile
from aladin_network.types import NullProgress
from aladin_training.batches.batch import ExchangedBatch
from aladin_training.batches.dataset import PairDataset, PlannedBatches
from aladin_training.batches.exchanged_texts import ExchangedTexts
from aladin_training.batches.plan import BatchPlan
from aladin_training.config.recipe import load_recipe
from aladin_training.data import Record
from aladin_training.parallel.distributed import BatchShare
from aladin_training.stages.preparation import prepare_run

TASK = ["stage_defaults.tasks.alignment_exchanged.loss=pair_margin"]


def record(name: str, *captions: str) -> Record:
    return Record(id=name, photo=PhotoFile(Path(name)), uri=name, captions=captions)


RECORDS = [
    record("a", "they wait", "a dog in the snow"),
    record("b", "two boys", "a table"),
    record("c", "they smile", "they wait"),
]
FIRST = 6


def test_a_text_is_made_from_a_caption_of_the_batch_and_its_column_is_told() -> None:
    exchanged = ExchangedTexts(RECORDS, FIRST)
    seen: set[str] = set()
    for seed in range(50):
        draw = exchanged.draw([0, 1, 2, 3, 4, 5], 2, random.Random(seed))
        assert draw.is_exchanged == [True, True, False]
        assert draw.captions == [1, 2, 4]
        assert draw.texts[2] == 4  # the photo's own caption, which counts for nothing
        texts = [exchanged.texts[row - FIRST] for row in draw.texts[:2]]
        assert len(set(texts[0].split()) ^ {"a", "dog", "in", "the", "snow"}) == 2
        assert len(set(texts[1].split()) ^ {"two", "boys"}) == 2
        seen |= set(texts)
    assert len(seen) > 2


def test_the_same_captions_have_the_same_texts() -> None:
    texts = ExchangedTexts(RECORDS, FIRST).texts
    assert texts == ExchangedTexts(RECORDS, FIRST).texts
    assert len(set(texts)) == len(texts)


def test_other_texts_than_captions_have_none() -> None:
    draw = ExchangedTexts(RECORDS, FIRST).draw([FIRST + 7, 3], 1, random.Random(0))
    assert draw.is_exchanged == [False, True]
    assert draw.texts[0] == FIRST + 7


def test_a_share_keeps_the_columns_of_the_whole_batch() -> None:
    draw = ExchangedTexts(RECORDS, FIRST).draw([1, 3, 2, 5], 1, random.Random(0))
    half = draw.of(BatchShare(rank=1, world=2))
    assert half.captions == [2, 3]
    assert half.texts == draw.texts[2:]
    assert half.is_exchanged == [True, False]


def test_batches_hold_the_exchanged_captions(recipe_path: Path) -> None:
    pairs = prepare_run(load_recipe(recipe_path, TASK), NullProgress()).train_set
    assert isinstance(pairs, PairDataset)
    exchanged = pairs.exchanged_texts
    assert exchanged is not None
    plan = BatchPlan(pairs.captions_of_photo, 5, 2, pairs.views, "0:a", exchanged_texts=exchanged)
    plain = BatchPlan(pairs.captions_of_photo, 5, 2, pairs.views, "0:a")
    count = 0
    batches = PlannedBatches(pairs, plan)
    for batch, rows, before in zip(batches.epoch(0), plan.epoch(0), plain.epoch(0), strict=True):
        assert rows.photos == before.photos
        assert isinstance(batch.exchanged, ExchangedBatch)
        assert rows.exchanged is not None
        assert batch.exchanged.captions.tolist() == rows.exchanged.captions
        for place, (text, column, is_exchanged) in enumerate(zip(*rows.exchanged, strict=True)):
            assert column // 2 == place
            if is_exchanged:
                caption = pairs.captions[rows.captions[column]]
                changed = exchanged.texts[text - len(pairs.captions)]
                assert len(set(caption.split()) ^ set(changed.split())) in (1, 2)
                count += 1
        texts = pairs.inputs.texts.get(rows.exchanged.texts)
        for ours, theirs in zip(batch.exchanged.texts, texts, strict=True):
            assert torch.equal(ours, theirs)
    assert count


def test_without_the_task_nothing_changes(recipe_path: Path) -> None:
    train_set = prepare_run(load_recipe(recipe_path), NullProgress()).train_set
    assert isinstance(train_set, PairDataset)
    assert train_set.exchanged_texts is None
