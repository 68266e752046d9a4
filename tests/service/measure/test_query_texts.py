"""Short and foreign texts as queries of a split, and the photos that are right for them."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray

from aladin_network.checkpoint import load_checkpoint
from aladin_network.checkpoint_files import Checkpoint
from aladin_network.photos.files import PhotoFile
from aladin_network.types import NullProgress
from aladin_service.measure.query_texts import (
    draw_short_queries,
    encode_foreign_queries,
    encode_short_queries,
    foreign_texts,
    make_up_words,
    right_by_captions,
)
from aladin_training.data import Record, read_records
from aladin_training.evaluation import encode_captions


def record(name: str, *captions: str) -> Record:
    return Record(id=name, photo=PhotoFile(Path(name)), uri=name, captions=captions)


RECORDS = [
    record("a", "A small red ball on the grass .", "A ball ."),
    record("b", "A red dog catches a blue ball ."),
    record("c", "They are running ."),
]


def test_queries_are_nouns_and_noun_phrases_once_each() -> None:
    texts = draw_short_queries(RECORDS)
    assert sorted(texts) == sorted(set(texts))
    assert texts == draw_short_queries(RECORDS)
    words = {word for text in texts for word in text.split()}
    assert words <= {"a", "the", "small", "red", "blue", "ball", "grass", "dog"}
    assert {"ball", "dog"} <= {text.split()[-1] for text in texts}


def test_the_photos_whose_captions_say_it_are_right() -> None:
    texts = ["a red ball", "ball", "dog", "a cat", "they are"]
    expected = [
        [True, False, False],
        [True, True, False],
        [False, True, False],
        [False, False, False],
        [False, False, False],  # no phrase, so nothing is known
    ]
    assert right_by_captions(texts, RECORDS).tolist() == expected


@pytest.fixture(scope="module")
def checkpoint(tiny_checkpoint: Path) -> Checkpoint:
    return load_checkpoint(tiny_checkpoint)


def every_second(texts: Sequence[str], records: Sequence[Record]) -> NDArray[np.bool_]:
    """Every second text is right for the first two photos, the others for none."""
    right = np.zeros((len(texts), len(records)), dtype=np.bool_)
    right[::2, :2] = True
    return right


def test_short_queries_without_a_right_photo_are_left_out_and_made_up_words_added(
    checkpoint: Checkpoint, data_file: Path
) -> None:
    records = read_records(data_file)
    known = draw_short_queries(records)[::2]
    queries = encode_short_queries(checkpoint.model, records, every_second, NullProgress())
    assert queries is not None
    count = len(known) + math.ceil(len(known) / 4)
    assert queries.encoded.size == len(queries.groups) == count
    assert queries.is_short
    assert queries.right[: len(known), :2].all()
    assert not queries.right[len(known) :].any()
    encoded = encode_captions(checkpoint.model, known, NullProgress())
    assert torch.allclose(queries.encoded.embedding[: len(known)], encoded.embedding, atol=1e-5)
    assert len(set(queries.groups)) == len({text.split()[-1] for text in known})


def test_foreign_texts_name_what_no_caption_names() -> None:
    texts = {text for _, text in foreign_texts(RECORDS)}
    assert {"a chest x-ray", "an octopus", "a drawing of an octopus"} <= texts
    said = {text for _, text in foreign_texts([*RECORDS, record("d", "The octopus")])}
    assert texts - said == {"an octopus"}


def test_foreign_texts_that_hold_for_a_photo_are_left_out(checkpoint: Checkpoint) -> None:
    made = list(foreign_texts(RECORDS))
    queries = encode_foreign_queries(checkpoint.model, RECORDS, every_second, NullProgress())
    assert queries is not None
    assert queries.groups.tolist() == [number for number, _ in made[1::2]]
    assert (queries.right.any(), queries.is_short) == (False, False)


def test_made_up_words_replace_one_word_each() -> None:
    texts = ["a red ball", "dog", "the grass", "ball"] * 5
    changed = make_up_words(texts)
    assert len(changed) == 5
    for before, after in zip(texts, changed, strict=False):
        pairs = list(zip(before.split(), after.split(), strict=True))
        assert sum(one != other for one, other in pairs) == 1
        assert pairs[0][1] in ("a", "the") or len(pairs) == 1


def none_right(texts: Sequence[str], records: Sequence[Record]) -> NDArray[np.bool_]:
    return np.zeros((len(texts), len(records)), dtype=np.bool_)


@pytest.mark.parametrize(
    ("records", "right"),
    [([record("c", "they are running")], right_by_captions), (RECORDS, none_right)],
    ids=["no phrase", "no right photo"],
)
def test_captions_that_give_no_queries(
    checkpoint: Checkpoint, records: list[Record], right: Any
) -> None:
    assert encode_short_queries(checkpoint.model, records, right, NullProgress()) is None
