"""Queries of a split: among its own items, and in an index that has some of them."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from aladin_index.building.builder import build_index
from aladin_index.generations.reader import open_index
from aladin_index.settings import BuildSettings
from aladin_network.calibration.fit import AskedQuery
from aladin_network.checkpoint import load_checkpoint
from aladin_network.checkpoint_files import Checkpoint
from aladin_network.errors import InputError
from aladin_network.scoring.scores import alignment_scores
from aladin_network.types import Direction, NullProgress
from aladin_service.item_sources import image_items, text_items
from aladin_service.measure.asked_queries import (
    AskedCollection,
    EncodedSplit,
    ask_split,
    encode_split,
)
from aladin_training.data import read_records


@pytest.fixture(scope="module")
def checkpoint(tiny_checkpoint: Path) -> Checkpoint:
    return load_checkpoint(tiny_checkpoint)


@pytest.fixture(scope="module")
def split(checkpoint: Checkpoint, data_file: Path) -> EncodedSplit:
    """All six photos of the data."""
    return encode_split(checkpoint.model, read_records(data_file), NullProgress())


@pytest.fixture(scope="module")
def partial_index(
    tiny_checkpoint: Path, data_file: Path, tmp_path_factory: pytest.TempPathFactory
) -> Path:
    """An index of five of the six photos, and of their captions."""
    out = tmp_path_factory.mktemp("partial") / "index"
    settings = BuildSettings(token_dtype="float16")
    images, texts = image_items(data_file, "test"), text_items(data_file, "test")
    build_index(tiny_checkpoint, out, images, texts, settings)
    return out


def asked_of_split(
    checkpoint: Checkpoint, split: EncodedSplit, direction: Direction, number: int = 100
) -> list[AskedQuery]:
    return ask_split(checkpoint.model, split.images, split.captions, direction, number)


def test_every_caption_asks_for_its_photo(split: EncodedSplit, checkpoint: Checkpoint) -> None:
    asked = asked_of_split(checkpoint, split, "text_to_image")
    assert [query.group for query in asked] == [0, 0, 1, 1, 2, 2, 3, 3, 4, 4, 5, 5]
    expected = alignment_scores(split.images, split.captions.encoded).numpy()
    for text, query in enumerate(asked):
        scores = query.candidates
        assert sorted(scores.rows) == list(range(6))
        assert (np.diff(scores.match) <= 0).all()
        assert scores.align == pytest.approx(expected[scores.rows, text], abs=1e-5)
        assert (query.right == (scores.rows == text // 2)).all()
        assert set(scores.words) == {int(split.captions.encoded.mask[text].sum())}
        assert (query.has_match, query.is_short) == (True, False)


def test_every_photo_asks_for_its_captions(split: EncodedSplit, checkpoint: Checkpoint) -> None:
    asked = asked_of_split(checkpoint, split, "image_to_text")
    words = split.captions.encoded.mask.sum(dim=1).numpy()
    assert [query.group for query in asked] == list(range(6))
    for photo, query in enumerate(asked):
        assert (query.right == (query.candidates.rows // 2 == photo)).all()
        assert (query.candidates.words == words[query.candidates.rows]).all()


def test_texts_without_a_right_photo_and_models_without_a_second_stage(
    split: EncodedSplit, checkpoint: Checkpoint
) -> None:
    right = np.zeros_like(split.captions.right)
    nothing = split.captions._replace(right=right, is_short=True)
    model, images = checkpoint.model, split.images
    for query in ask_split(model, images, nothing, "text_to_image", 100, is_aligned=False):
        assert (query.has_match, query.is_short, query.right.any()) == (False, True, False)
        assert query.candidates.align is None


def test_candidates_beyond_those_that_are_judged_are_dropped(
    split: EncodedSplit, checkpoint: Checkpoint, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A search of two candidates is left with two when both captions are taken out."""
    monkeypatch.setattr("aladin_network.calibration.fit.POOL", 1)
    asked = asked_of_split(checkpoint, split, "image_to_text", 2)
    assert {len(query.right) for query in asked} == {4}


def same(ours: AskedQuery, expected: AskedQuery) -> None:
    """Compare the answers of an index with those of a split; rows have other numbers there."""
    assert (ours.group, ours.has_match) == (expected.group, expected.has_match)
    assert (ours.right == expected.right).all()
    assert ours.candidates.match == pytest.approx(expected.candidates.match, abs=1e-5)
    assert ours.candidates.align == pytest.approx(expected.candidates.align, abs=0.01)
    assert (ours.candidates.words == expected.candidates.words).all()
    assert len(set(ours.candidates.rows)) == len(ours.right)


def test_an_index_is_asked_as_if_it_had_every_right_answer(
    partial_index: Path, split: EncodedSplit, checkpoint: Checkpoint
) -> None:
    """The sixth photo's own queries find it beside the five; the others do not see it."""
    captions, ids = split.captions, [record.id for record in split.records]
    with open_index(partial_index) as index:
        images, texts = (
            AskedCollection(index.collection(target), answers, names, 100, None, is_aligned=True)
            for target, answers, names in (
                ("images", split.images, ids),
                ("texts", captions.encoded, list(split.caption_ids)),
            )
        )
        by_text = images.ask(captions.encoded, captions.right, captions.groups, NullProgress())
        by_image = texts.ask(split.images, captions.right.T, np.arange(6), NullProgress())
    expected_by_text = asked_of_split(checkpoint, split, "text_to_image")
    for ours, expected in zip(by_text, expected_by_text, strict=True):
        seen = np.ones(6, dtype=bool) if ours.group == 5 else expected.candidates.rows != 5
        same(ours, AskedQuery(expected.group, expected.candidates.take(seen), expected.right[seen]))
    expected_by_image = asked_of_split(checkpoint, split, "image_to_text")
    for ours, expected in zip(by_image, expected_by_image, strict=True):
        seen = np.ones(12, dtype=bool) if ours.group == 5 else expected.candidates.rows < 10
        same(ours, AskedQuery(expected.group, expected.candidates.take(seen), expected.right[seen]))


def test_photos_without_a_caption_do_not_ask(checkpoint: Checkpoint) -> None:
    with pytest.raises(InputError, match="expected photos with captions, found 0"):
        encode_split(checkpoint.model, [], NullProgress())
