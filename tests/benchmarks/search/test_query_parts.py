"""The benchmark of queries of several parts."""

from __future__ import annotations

import random
from pathlib import Path

import numpy as np
import pytest

from aladin_network.photos.files import PhotoFile
from aladin_service.search.job import PartsQuery, TextQuery
from aladin_training.data.records import Record
from benchmarks.search.drawn_queries import (
    NegatedQuery,
    NotQuery,
    Photo,
    draw_negated,
    draw_queries,
    unmentioned,
)
from benchmarks.search.feedback import Marks, Ratios, mark, open_qdrant, rank_by_labels
from benchmarks.search.query_parts import Measured

BALL, GRASS = "a dog plays with a ball", "a dog sleeps on the grass"
CAPTIONS = {
    f"{kind} {n}": (text, text)
    for kind, text in (("ball", BALL), ("grass", GRASS))
    for n in range(12)
}
PHOTOS = {item_id: Photo.of(captions) for item_id, captions in CAPTIONS.items()}


def test_a_photo_has_what_two_captions_name_and_lacks_what_none_mentions() -> None:
    photo = Photo.of(["two dogs with a ball", "a dog runs", "a red frisbee"])
    assert photo.named["dog"] == 2
    assert photo.named["ball"] == 1
    assert photo.named["cat"] == 0
    assert {"dog", "ball", "frisbee", "red"} <= photo.mentioned
    assert "cat" not in photo.mentioned


def test_the_unwanted_noun_divides_the_photos_that_have_the_rest() -> None:
    records = [
        Record(id=item_id, photo=PhotoFile(Path(item_id)), uri=item_id, captions=captions)
        for item_id, captions in CAPTIONS.items()
    ]
    drawn = draw_queries(records, PHOTOS, 3, seed=0)
    assert drawn == draw_queries(records, PHOTOS, 3, seed=0)
    assert drawn
    for query in drawn:
        # Only "dog" is in both kinds of captions, so only it can be divided.
        assert "dog" in query.text
        assert query.has_a == CAPTIONS.keys()
        assert query.without in {"ball", "grass"}


class Answered(Measured):
    """Searches with known hits: one list for a text, one for a query of parts."""

    def __init__(self, text: list[str], parts: list[str]) -> None:
        self._text, self._parts = text, parts

    def hits(self, query: TextQuery | PartsQuery, k: int = 5) -> list[str]:
        """Return the first of the known hits."""
        return (self._text if isinstance(query, TextQuery) else self._parts)[:k]


def test_figures_of_known_hits() -> None:
    balls, grass = list(PHOTOS)[:12], list(PHOTOS)[12:]
    query = NotQuery("a dog", "ball", frozenset([*balls, *grass]))
    measured = Answered([*balls[:1], *grass[:2], *balls[1:]], [*grass[:4], *balls])
    # Of five hits two lack the ball; one with the ball is above the first of them.
    assert measured.without(query, PHOTOS) == [0.4, 1, False, False]
    assert measured.without(query, PHOTOS, 1.0) == [0.8, 1, False, True]
    # Who knew where balls are would leave their photos out: two hits remain.
    assert measured.bound(query, PHOTOS) == [0.4, 0.4, True, True]


def test_what_is_seen_among_the_first_hits_is_negated() -> None:
    balls, grass = list(PHOTOS)[:12], list(PHOTOS)[12:]
    query = NotQuery("a dog", "ball", frozenset([*balls, *grass]))
    seen = Answered([balls[0], *grass[:4]], []).seen(query, PHOTOS, random.Random(0))
    assert seen is not None
    assert seen.without == "grass"  # one photo has a ball
    nothing = Answered(["cat"], []).seen(
        query._replace(has_a=frozenset()), PHOTOS, random.Random(0)
    )
    assert nothing is None


def test_captions_that_do_not_mention_what_another_names_are_counted() -> None:
    captions = [("a dog", "a dog", "a ball"), ("a ball", "a ball")]
    records = [
        Record(id=str(n), photo=PhotoFile(Path("x")), uri="x", captions=each)
        for n, each in enumerate(captions)
    ]
    # One in three captions that name a ball has no other beside it; none for a dog.
    assert unmentioned(records, ["ball", "dog", "dog", "ball"]) == pytest.approx(1 / 6)


def test_hits_after_feedback_are_counted_beyond_those_seen() -> None:
    wrong = [f"w{n}" for n in range(18)]
    seen = ["r0", "r1", "r2", "r3", *wrong[:16]]
    right = frozenset(f"r{n}" for n in range(9))
    after = ["r4", *(f"v{n}" for n in range(19))]
    marks = mark([*seen, *after], right)
    assert marks == Marks(seen, ["r0", "r1", "r2"], wrong[:3], after)
    ratios = Ratios()
    ratios.start(marks, right)
    ratios.add("ours", [*seen, "r5", "r6", "r7", "v0"])
    ratios.add("other", [*(f"v{n}" for n in range(20)), "r5"])  # beyond the next twenty
    assert ratios.figures() == {
        "feedback_texts": 1,
        "next_right": 1,
        "feedback_ours": 3,
        "feedback_other": 0,
    }
    # Fewer than three right ones among the first twenty cannot be marked.
    assert mark(["r0", "r1", *wrong, *after], right) is None


def test_qdrant_s_queries_take_the_marks() -> None:
    pytest.importorskip("qdrant_edge")
    random_rows = np.random.default_rng(0).normal(size=(60, 8)).astype(np.float32)
    embeddings = random_rows / np.linalg.norm(random_rows, axis=1, keepdims=True)
    ids = [f"p{n}" for n in range(60)]
    marks = Marks(ids[:6], ids[:3], ids[3:6], ids[6:12])
    with open_qdrant(ids, embeddings) as qdrant:
        assert qdrant is not None
        found = dict(qdrant.searches(embeddings[7], marks, 10))
    sums = embeddings @ (embeddings[[7, 0, 1, 2]].sum(axis=0) - embeddings[3:6].sum(axis=0))
    expected = [ids[row] for row in np.argsort(-sums)[:10]]
    assert found["qdrant_RecommendSumScores"] == expected
    assert all(len(hits) == 10 for hits in found.values())


def test_a_classifier_of_all_labels_ranks_what_is_separable_first() -> None:
    ids = [f"p{n}" for n in range(40)]
    random_rows = np.random.default_rng(1).normal(size=(40, 4)).astype(np.float32)
    right = frozenset(ids[:15])
    random_rows[:15, 0] += 8
    assert set(rank_by_labels(ids, random_rows, right)[:15]) == right


def test_negated_sentences_name_what_only_photos_with_the_same_noun_have() -> None:
    records = [
        Record(id=item_id, photo=PhotoFile(Path(item_id)), uri=item_id, captions=captions)
        for item_id, captions in CAPTIONS.items()
    ]
    drawn = draw_negated(records, PHOTOS, 20, seed=0)
    # Of the photos of dogs, those with a ball lack the grass, and the other way around.
    assert {(query.text, query.without) for query in drawn} == {(BALL, "grass"), (GRASS, "ball")}
    for query in drawn:
        ends = {f" without a {query.without}", f", no {query.without}"}
        assert query.sentence.removeprefix(query.text) in ends
        assert query.without not in PHOTOS[query.photo].mentioned


def test_figures_of_negated_sentences_by_known_hits() -> None:
    balls, grass = list(PHOTOS)[:12], list(PHOTOS)[12:]
    measured = Answered([balls[0], *grass], [*grass[:5], balls[0]])
    asked = NegatedQuery(GRASS, f"{GRASS}, no ball", "ball", grass[4])
    # As a text the photo is sixth, below one with the ball; as parts fifth, without.
    assert measured.negated(asked, PHOTOS) == [False, True, False, True, True, False, True]
    whole = asked._replace(sentence=GRASS)  # nothing to split
    assert measured.negated(whole, PHOTOS) == [False, True, False, True, False, True, False]
