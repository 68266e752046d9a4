"""Short queries of a split, and the photos that are right for them."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

from aladin_network.checkpoint import load_checkpoint
from aladin_network.checkpoint_files import Checkpoint
from aladin_network.photos.files import PhotoFile
from aladin_network.types import NullProgress
from aladin_service.measure.calibration_split import encode_split
from aladin_service.measure.short_queries import (
    ask_short_queries,
    draw_short_queries,
    encode_short_queries,
    make_up_words,
    right_by_captions,
)
from aladin_training.data import Record, read_records


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


def test_short_queries_search_the_photos_of_the_split(
    checkpoint: Checkpoint, data_file: Path
) -> None:
    split = encode_split(checkpoint.model, read_records(data_file), NullProgress())

    def right_answers(texts: object, records: object) -> np.ndarray:
        """Every second query is right for the first two photos, the others for none."""
        right = np.zeros((len(texts), len(records)), dtype=np.bool_)  # type: ignore[arg-type]
        right[::2, :2] = True
        return right

    drawn = draw_short_queries(split.records)
    queries = encode_short_queries(checkpoint.model, split.records, right_answers, NullProgress())
    assert queries is not None
    asked = ask_short_queries(checkpoint.model, split.images, queries, 100)
    match = checkpoint.model.scores("matching", split.images, queries.encoded).numpy()
    align = checkpoint.model.scores("alignment", split.images, queries.encoded).numpy()
    words = queries.encoded.mask.sum(dim=1).numpy()
    known = [text for text in queries.texts if text in drawn]
    assert known == drawn[::2]  # without the ones that are right for no photo
    assert len(queries.texts) == len(known) + math.ceil(len(known) / 4)
    for row, query in enumerate(asked.asked.queries):
        rows = query.candidates.rows
        assert sorted(rows) == list(range(6))
        assert query.has_match is (row < len(known))
        assert (query.right == (rows < 2) & query.has_match).all()
        assert query.candidates.match == pytest.approx(match[rows, row])
        assert query.candidates.align == pytest.approx(align[rows, row], abs=1e-5)
        assert set(query.candidates.words) == {words[row]}
        assert query.photo == queries.groups[row]
        # Those with a made-up word are a kind of their own, which its own model tells.
        assert query.kind == ("hard" if row < len(known) else "far")
        assert query.embedding == pytest.approx(queries.encoded.embedding[row].numpy())
    typed = {len(text.split()) for text in queries.texts}
    assert {asked.lengths.low, asked.lengths.high} <= typed
    assert len(set(queries.groups)) == len({text.split()[-1] for text in known})


def test_made_up_words_replace_one_word_each() -> None:
    texts = ["a red ball", "dog", "the grass", "ball"] * 5
    changed = make_up_words(texts)
    assert len(changed) == 5
    for before, after in zip(texts, changed, strict=False):
        pairs = list(zip(before.split(), after.split(), strict=True))
        assert sum(one != other for one, other in pairs) == 1
        assert pairs[0][1] in ("a", "the") or len(pairs) == 1


def test_captions_without_a_phrase_ask_nothing(checkpoint: Checkpoint) -> None:
    found = encode_short_queries(
        checkpoint.model, [record("c", "they are running")], right_by_captions, NullProgress()
    )
    assert found is None


def test_texts_that_are_right_for_no_photo_ask_nothing(checkpoint: Checkpoint) -> None:
    def right_answers(texts: Sequence[str], records: Sequence[Record]) -> NDArray[np.bool_]:
        return np.zeros((len(texts), len(records)), dtype=np.bool_)

    assert draw_short_queries(RECORDS)
    found = encode_short_queries(checkpoint.model, RECORDS, right_answers, NullProgress())
    assert found is None
