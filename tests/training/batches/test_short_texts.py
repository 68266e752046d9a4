"""Shorter texts in place of captions, and the pairs that are then no negatives."""

from __future__ import annotations

import random
from pathlib import Path

import pytest
import torch

from aladin_network.encoders.base import TextBatch
from aladin_network.photos.files import PhotoFile
from aladin_network.types import NullProgress
from aladin_training.batches.dataset import PairDataset
from aladin_training.batches.plan import BatchPlan
from aladin_training.batches.short_texts import ShortTexts
from aladin_training.config.recipe import load_recipe
from aladin_training.data import Record
from aladin_training.stages.preparation import prepare_run
from tests.training.short_stage import stage_of


def record(name: str, *captions: str) -> Record:
    return Record(id=name, photo=PhotoFile(Path(name)), uri=name, captions=captions)


RECORDS = [
    record("a", "a red circle in the snow", "a circle"),
    record("b", "a small red circle and a blue star"),
    record("c", "a red star and a blue circle"),
]
CAPTIONS = 4


def test_only_the_given_share_of_captions_is_replaced_by_texts_of_their_own() -> None:
    short = ShortTexts(RECORDS)
    captions = [0] * 4000
    shown = short.replace(captions, 0.25, random.Random(0))
    replaced = [row for row in shown if row != 0]
    assert 0.2 < len(replaced) / len(shown) < 0.3
    texts = {short.texts[row - CAPTIONS] for row in replaced}
    assert texts <= {"red", "circle", "a circle", "a red circle", "red circle", "snow", "the snow"}
    assert len(texts) > 1
    # "they are here" has no phrase, so that it is always shown itself.
    silent = ShortTexts([record("d", "they are here")])
    assert silent.replace([0, 0], 1.0, random.Random(0)) == [0, 0]


def test_the_same_captions_have_the_same_texts() -> None:
    texts = ShortTexts(RECORDS).texts
    assert texts == ShortTexts(RECORDS).texts
    assert len(set(texts)) == len(texts)


def test_a_text_is_no_negative_of_a_photo_whose_captions_say_it() -> None:
    short = ShortTexts(RECORDS)
    short.texts.append("a red circle")
    rows = {text: CAPTIONS + place for place, text in enumerate(short.texts)}
    assert short.holding([0, 1, 2], [0, 1, 2, 3]).sum() == 0  # captions are never marked
    for text, expected in (("circle", [True, True, True]), ("the snow", [True, False, False])):
        if text in rows:
            assert short.holding([0, 1, 2], [rows[text]])[:, 0].tolist() == expected
    assert short.holding([0, 1, 2], [rows["circle"], 0]).shape == (3, 2)


@pytest.fixture(scope="module")
def pairs(recipe_path: Path) -> PairDataset:
    recipe = load_recipe(recipe_path, ["stage_defaults.short_captions=1.0"])
    train_set = prepare_run(recipe, NullProgress()).train_set
    assert isinstance(train_set, PairDataset)
    return train_set


def test_batches_show_short_texts_and_mask_them(pairs: PairDataset) -> None:
    short = pairs.short_texts
    assert short is not None
    stage, rows_of = stage_of(5, 2, short_captions=1.0), (pairs.captions_of_photo, pairs.views)
    plan = BatchPlan(*rows_of, stage, "0:a", None, short)
    plain = BatchPlan(*rows_of, stage_of(5, 2), "0:a")
    batches = pairs.batches(stage, "0:a")
    for batch, rows, before in zip(batches.epoch(0), plan.epoch(0), plain.epoch(0), strict=True):
        assert rows.photos == before.photos
        assert isinstance(batch.texts, TextBatch)
        is_short = [row >= len(pairs.captions) for row in rows.captions]
        assert any(is_short)
        held = short.holding(rows.photos, rows.captions)
        assert not (batch.negatives & held).any()
        own = torch.arange(5).repeat_interleave(2)
        others = torch.arange(5).unsqueeze(1) != own
        assert torch.equal(batch.negatives, others & ~held)


def test_without_the_option_nothing_changes(recipe_path: Path) -> None:
    train_set = prepare_run(load_recipe(recipe_path), NullProgress()).train_set
    assert isinstance(train_set, PairDataset)
    assert train_set.short_texts is None
