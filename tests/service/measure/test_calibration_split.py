"""Queries of a split: among its own items, and in an index that has some of them."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from aladin_index.build.builder import build_index
from aladin_index.generations.reader import open_index
from aladin_index.settings import BuildSettings
from aladin_network.calibration.examples import AskedQuery
from aladin_network.checkpoint import load_checkpoint
from aladin_network.checkpoint_files import Checkpoint
from aladin_network.errors import InputError
from aladin_network.scoring.scores import alignment_scores
from aladin_network.types import NullProgress
from aladin_service.item_sources import image_items, text_items
from aladin_service.measure.calibration_index import ask_images, ask_texts
from aladin_service.measure.calibration_split import EncodedSplit, ask_split, encode_split
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


def test_every_caption_asks_for_its_photo(split: EncodedSplit, checkpoint: Checkpoint) -> None:
    asked = ask_split(checkpoint.model, split, 100)("text_to_image")
    assert [query.photo for query in asked] == [0, 0, 1, 1, 2, 2, 3, 3, 4, 4, 5, 5]
    expected = alignment_scores(split.images, split.texts).numpy()
    for text, query in enumerate(asked):
        scores = query.candidates
        assert sorted(scores.rows) == list(range(6))
        assert (np.diff(scores.match) <= 0).all()
        assert scores.align == pytest.approx(expected[scores.rows, text], abs=1e-5)
        assert (query.right == (scores.rows == text // 2)).all()
        assert set(scores.words) == {int(split.texts.mask[text].sum())}


def test_every_photo_asks_for_its_captions(split: EncodedSplit, checkpoint: Checkpoint) -> None:
    asked = ask_split(checkpoint.model, split, 100)("image_to_text")
    assert [query.photo for query in asked] == list(range(6))
    for photo, query in enumerate(asked):
        assert (query.right == (query.candidates.rows // 2 == photo)).all()
        assert (query.candidates.words == split.words[query.candidates.rows]).all()


def test_what_stands_behind_the_candidates_is_not_kept(
    split: EncodedSplit, checkpoint: Checkpoint, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A search of two candidates is left with two when both captions are taken out."""
    monkeypatch.setattr("aladin_network.calibration.examples.POOL", 1)
    asked = ask_split(checkpoint.model, split, 2)("image_to_text")
    assert {len(query.right) for query in asked} == {4}


def same(ours: AskedQuery, expected: AskedQuery) -> None:
    """Compare the answers of an index with those of a split; rows have other numbers there."""
    assert ours.photo == expected.photo
    assert (ours.right == expected.right).all()
    assert ours.candidates.match == pytest.approx(expected.candidates.match, abs=1e-5)
    assert ours.candidates.align == pytest.approx(expected.candidates.align, abs=0.01)
    assert (ours.candidates.words == expected.candidates.words).all()
    assert len(set(ours.candidates.rows)) == len(ours.right)


def test_an_index_is_asked_as_if_it_had_every_right_answer(
    partial_index: Path, split: EncodedSplit, checkpoint: Checkpoint
) -> None:
    """The sixth photo's own queries find it beside the five; the others do not see it."""
    among = ask_split(checkpoint.model, split, 100)
    with open_index(partial_index) as index:
        by_text = ask_images(index.side("images"), split, 100, NullProgress())
        by_image = ask_texts(index.side("texts"), split, 100, NullProgress())
    for ours, expected in zip(by_text, among("text_to_image"), strict=True):
        seen = np.ones(6, dtype=bool) if ours.photo == 5 else expected.candidates.rows != 5
        same(ours, AskedQuery(expected.photo, expected.candidates.take(seen), expected.right[seen]))
    for ours, expected in zip(by_image, among("image_to_text"), strict=True):
        seen = np.ones(12, dtype=bool) if ours.photo == 5 else expected.candidates.rows < 10
        same(ours, AskedQuery(expected.photo, expected.candidates.take(seen), expected.right[seen]))


def test_photos_without_a_caption_do_not_ask(checkpoint: Checkpoint) -> None:
    with pytest.raises(InputError, match="expected photos with captions, found 0"):
        encode_split(checkpoint.model, [], NullProgress())
