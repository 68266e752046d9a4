"""What an answer is judged by: designs of hits and queries, and logistic models of them."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np

from aladin_network.calibration.calibration import Calibration
from aladin_network.calibration.judging import (
    CandidateScores,
    LogisticModel,
    hit_design,
    probability,
    query_design,
)


def scores(
    rows: list[int], match: list[float], align: list[float] | None, words: list[int]
) -> CandidateScores:
    return CandidateScores(
        np.array(rows),
        np.array(match, dtype=np.float32),
        None if align is None else np.array(align, dtype=np.float32),
        np.array(words),
    )


POOL = scores([4, 7, 2], [0.5, 0.25, 0.125], [1.0, 3.0, 2.5], [2, 2, 2])


def test_the_design_of_hits_has_scores_gap_and_place_also_times_the_length() -> None:
    hits = scores([7, 2, 9], [0.25, 0.125, 0.0], [3.0, 2.5, 4.0], [2, 4, 1])
    # The best of the pool is compared with the second, others with the best.
    expected = np.array([[0.25, 3.0, 0.5, 1.0], [0.125, 2.5, -0.5, 0.0], [0.0, 4.0, 1.0, 1.0]])
    lengths = np.log([2, 4, 1])
    found = hit_design(POOL, hits)
    np.testing.assert_allclose(found[:, :4], expected)
    np.testing.assert_allclose(found[:, 4:8], expected * lengths[:, None])
    np.testing.assert_allclose(found[:, 8:], np.stack([lengths, lengths**2], axis=1))
    # Without alignment scores the gap is that of the cosines.
    pool = POOL._replace(align=None)
    cosines = [[0.5, 0.25, 1.0], [0.25, -0.25, 0.0], [0.125, -0.375, 0.0]]
    np.testing.assert_allclose(hit_design(pool, pool)[:, :3], cosines)
    assert hit_design(pool, pool).shape == (3, 8)
    # A pool of one item has no gap, and no words count as one.
    one = scores([3], [0.5], [1.0], [0])
    np.testing.assert_array_equal(hit_design(one, one), [[0.5, 1.0, 0.0, 1.0, 0, 0, 0, 0, 0, 0]])


def test_the_design_of_a_query_has_the_odds_of_any_right_hit_and_the_gap_of_the_best() -> None:
    probabilities = np.array([0.5, 0.25, 0.125])
    found = query_design(POOL, np.log(probabilities / (1 - probabilities)))
    some = 1 - 0.5 * 0.75 * 0.875
    log_odds, length = math.log(some / (1 - some)), math.log(2)
    expected = [log_odds, 0.5, log_odds * length, 0.5 * length, length, length**2]
    np.testing.assert_allclose(found, [expected])
    for extreme in (-800.0, 800.0):
        found = query_design(POOL, np.full(3, extreme))
        assert np.isfinite(found).all()
        assert np.sign(found[0, 0]) == np.sign(extreme)
    # Only the ten likeliest candidates count.
    many = scores(list(range(30)), [0.5] * 30, [1.0] * 30, [2] * 30)
    likely = np.array([-1.0] * 10 + [-40.0] * 20)
    ten = many.take(slice(10))
    np.testing.assert_allclose(query_design(many, likely), query_design(ten, likely[:10]))


def test_probabilities_are_those_of_log_odds() -> None:
    model = LogisticModel(intercept=-1.0, weights=[2.0, 0.5])
    log_odds = model.log_odds(np.array([[1.0, 2.0], [0.0, -2.0]]))
    np.testing.assert_allclose(log_odds, [2.0, -2.0])
    np.testing.assert_allclose(
        probability(log_odds), [1 / (1 + math.exp(-2)), 1 / (1 + math.exp(2))]
    )
    np.testing.assert_array_equal(probability(np.array([-1e4, 1e4])), [0.0, 1.0])


def test_a_calibration_judges_hits_beyond_the_pool_like_those_inside(
    make_calibration: Callable[..., Calibration],
) -> None:
    models = make_calibration("any").text_to_image
    hits = scores([7, 9], [0.25, 0.0], [3.0, 2.75], [2, 2])
    judged = models.judge(POOL, hits)
    half = math.log(2) / 2
    expected = [3 * 0.25 + 3 / 4 + 0.5 / 2 - half, 2.75 / 4 - 0.25 / 2 - half]
    np.testing.assert_allclose(judged.probabilities, 1 / (1 + np.exp(-np.array(expected))))
    assert judged.no_match is False
