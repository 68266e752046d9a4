"""Texts that nothing matches: exchanged words, and subjects that the captions do not name."""

from __future__ import annotations

import random
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

from aladin_index.build.builder import build_index
from aladin_index.generations.reader import open_index
from aladin_index.settings import BuildSettings
from aladin_network.calibration.examples import KINDS
from aladin_network.checkpoint import load_checkpoint
from aladin_network.types import NullProgress
from aladin_service.item_sources import image_items
from aladin_service.measure.calibration_index import ask_images
from aladin_service.measure.calibration_split import encode_split
from aladin_service.measure.short_queries import right_by_captions
from aladin_service.measure.unmatched_queries import (
    ask_unmatched,
    encode_unmatched_queries,
    exchange_word,
    far_texts,
    near_texts,
)
from aladin_training.data import Record, read_records
from aladin_training.demo.scenes import describe_scenes

CAPTIONS = ("A brown dog runs on the beach .", "A Dog and a woman at the sea")


@pytest.fixture
def records(data_file: Path) -> list[Record]:
    return list(read_records(data_file))


def test_each_photo_has_one_near_text(records: list[Record]) -> None:
    made = list(near_texts([replace(records[0], captions=CAPTIONS), records[1]]))
    assert next(row for row, _ in made) == 0
    assert len({row for row, _ in made}) == len(made)
    assert made == list(near_texts([replace(records[0], captions=CAPTIONS), records[1]]))


def test_far_texts_name_what_no_caption_names(records: list[Record]) -> None:
    everyday = [replace(records[0], captions=CAPTIONS)]
    texts = {text for _, text in far_texts(everyday)}
    assert "a chest x-ray" in texts
    drawn = [text for texts in describe_scenes(80) for text in texts]
    assert set(drawn) <= texts
    named = [replace(records[0], captions=(*CAPTIONS, "The octopus", *drawn))]
    texts = {text for _, text in far_texts(named)}
    assert "an octopus" not in texts
    assert not texts & set(drawn)  # the drawn scenes are no foreign subject to themselves
    assert "a chest x-ray" in texts


def test_split_and_index_find_the_same_for_them(
    tiny_checkpoint: Path, data_file: Path, records: list[Record], tmp_path: Path
) -> None:
    checkpoint = load_checkpoint(tiny_checkpoint)
    split = encode_split(checkpoint.model, records, NullProgress())
    made = encode_unmatched_queries(
        checkpoint.model, split.records, right_by_captions, NullProgress()
    )
    assert made is not None
    assert set(made.kinds) <= set(KINDS)
    assert made.photos.max() < len(records)
    queries = replace(
        made,
        texts=made.texts[:5],
        kinds=made.kinds[:5],
        photos=made.photos[:5],
        encoded=made.encoded.rows(slice(0, 5)),
    )
    here = ask_unmatched(checkpoint.model, split.images, queries, 100)
    items = image_items(data_file, None)
    build_index(
        tiny_checkpoint, tmp_path / "index", items, None, BuildSettings(token_dtype="float16")
    )
    with open_index(tmp_path / "index", checkpoint=checkpoint) as index:
        side = index.side("images")
        there = ask_images(side, split, 100, NullProgress(), unmatched=queries)[-5:]
    for ours, theirs, kind in zip(here, there, queries.kinds, strict=True):
        assert (ours.kind, ours.has_match, ours.right.any()) == (kind, False, False)
        assert (theirs.kind, theirs.has_match, theirs.right.any()) == (kind, False, False)
        assert ours.candidates.match == pytest.approx(theirs.candidates.match, abs=1e-5)
        assert ours.embedding == pytest.approx(theirs.embedding, abs=1e-6)


def test_texts_that_hold_for_a_photo_are_left_out(
    tiny_checkpoint: Path, records: list[Record]
) -> None:
    def every_second(texts: list[str], photos: list[Record]) -> NDArray[np.bool_]:
        return np.repeat((np.arange(len(texts)) % 2 == 0)[:, np.newaxis], len(photos), axis=1)

    model = load_checkpoint(tiny_checkpoint).model
    made = [*near_texts(records), *far_texts(records)]
    kept = encode_unmatched_queries(model, records, every_second, NullProgress())  # type: ignore[arg-type]
    assert kept is not None
    assert list(kept.texts) == [text for _, text in made[1::2]]


def exchanged(caption: str, captions: tuple[str, ...] = CAPTIONS) -> set[str | None]:
    return {exchange_word(caption, captions, random.Random(seed)) for seed in range(200)}


def test_one_word_is_exchanged_for_one_of_its_kind() -> None:
    made = exchanged("A man on the beach")
    assert "A woman on the beach" not in made  # another caption mentions one
    assert "A man on the street" in made
    for text in made:
        assert text is not None
        assert [*text.split()[:4]] == ["A", "man", "on", "the"]
    assert exchanged("Nothing of the lists") == {None}


def test_no_word_of_the_photos_captions_is_put_in() -> None:
    said = {word.lower() for caption in CAPTIONS for word in caption.split()}
    for text in exchanged(CAPTIONS[0]):
        assert text is not None
        words = zip(text.split(), CAPTIONS[0].split(), strict=True)
        (changed,) = [new for new, old in words if new != old]
        assert changed not in said
