"""Queries asked with and without their right answers."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from aladin_network.calibration.examples import PAGE, AskedQuery, candidates_kept, make_examples
from aladin_network.calibration.features import POOL, CandidateScores, query_features
from aladin_network.scoring.fusion import DirectionFusion


def query(right: list[bool], match: list[float], align: list[float], photo: int = 4) -> AskedQuery:
    count = len(right)
    scores = CandidateScores(
        np.arange(count),
        np.array(match, dtype=np.float32),
        np.array(align, dtype=np.float32),
        np.full(count, 3),
    )
    return AskedQuery(photo, scores, np.array(right))


def test_the_right_answer_is_there_once_and_out_once() -> None:
    asked = query([False, True, False], [0.9, 0.8, 0.7], [1.0, 2.0, 3.0])
    examples = make_examples([asked], 100, 0.5, None)
    assert examples.hits.right.tolist() == [False, True, False, False, False]
    assert examples.hits.features["match"] == pytest.approx([0.9, 0.8, 0.7, 0.9, 0.7])
    assert examples.first.tolist() == [True, False, False, True, False]
    assert examples.match.right.tolist() == [True, False]
    assert examples.match.features["match_gap"] == pytest.approx([0.1, 0.2], abs=1e-6)
    assert examples.hits.photos.tolist() == [4] * 5
    assert examples.match.photos.tolist() == [4, 4]
    assert set(examples.thresholds) == {"cosine"}


def test_what_takes_the_place_of_the_right_answer_is_a_candidate() -> None:
    """As many candidates go to the second stage either way."""
    asked = query([True, False, False], [0.9, 0.8, 0.7], [1.0, 2.0, 3.0])
    examples = make_examples([asked], 2, 0.5, None)
    assert examples.hits.features["match"] == pytest.approx([0.9, 0.8, 0.8, 0.7])


def test_pages_are_in_the_order_of_the_fusion() -> None:
    asked = query([False, True, False], [0.9, 0.8, 0.7], [1.0, 2.0, 3.0])
    by_align = make_examples([asked], 100, 0.5, DirectionFusion(weight=1.0))
    assert by_align.hits.features["align"].tolist() == [3, 2, 1, 3, 1]
    assert by_align.thresholds["cosine"] == pytest.approx([0.9, 0.9])
    assert by_align.thresholds["alignment"].tolist() == [3, 3]
    assert by_align.thresholds["alignment_per_word"] == pytest.approx([1, 1])
    by_match = make_examples([asked], 100, 0.5, DirectionFusion(weight=0.0))
    assert by_match.hits.features["align"].tolist() == [1, 2, 3, 1, 3]


def test_a_query_without_wrong_answers_is_asked_once() -> None:
    examples = make_examples([query([True], [0.9], [1.0])], 100, 0.5, None)
    assert examples.match.right.tolist() == [True]


def test_the_prior_weighs_both_kinds_of_query() -> None:
    asked = query([False, True], [0.9, 0.8], [1.0, 2.0])
    examples = make_examples([asked], 100, 0.2, None)
    assert examples.match.weights == pytest.approx([0.4, 1.6])
    assert examples.hits.weights == pytest.approx([0.4, 0.4, 1.6])


@pytest.mark.parametrize("num_candidates", [12, 130])
def test_few_candidates_do_not_make_a_smaller_pool(
    draw_queries: Callable[..., list[AskedQuery]], num_candidates: int
) -> None:
    asked = draw_queries(1, items=150)
    examples = make_examples(asked, num_candidates, 0.5, None)
    assert len(examples.hits.right) == 2 * PAGE
    expected = query_features(asked[0].candidates.take(slice(POOL)).without_alignment())
    assert examples.match.features["match_mean"][0] == expected["match_mean"][0]


def test_enough_is_kept_to_take_the_right_answers_out() -> None:
    assert candidates_kept(2 * POOL, 5) == 2 * POOL + 5
    assert candidates_kept(3, 5) == POOL + 5


def test_examples_are_taken_whole(draw_queries: Callable[..., list[AskedQuery]]) -> None:
    hits = make_examples(draw_queries(3), 100, 0.5, None).hits
    places = np.array([5, 1])
    taken = hits.take(places)
    assert taken.right.tolist() == hits.right[places].tolist()
    assert taken.photos.tolist() == hits.photos[places].tolist()
    assert taken.features["match"].tolist() == hits.features["match"][places].tolist()
