"""Features: scores, and how they stand out from the pool."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from aladin_network.calibration.features import (
    FEATURE_SETS,
    NOVELTY_SETS,
    CandidateScores,
    hit_features,
    judged_features,
    query_features,
)

POOL = CandidateScores(
    rows=np.array([7, 3, 5]),
    match=np.array([0.5, 0.3, 0.1], dtype=np.float32),
    align=np.array([2.0, 3.0, 1.0], dtype=np.float32),
    words=np.array([4, 4, 2]),
)


def test_a_hit_of_the_pool_is_compared_with_the_others() -> None:
    features = hit_features(POOL, POOL.take(slice(1)))
    spread = np.std([0.5, 0.3, 0.1])
    expected = {
        "match": 0.5,
        "match_gap": 0.2,
        "match_mean": 0.3,
        "match_spread": spread,
        "match_z": 0.2 / spread,
        "align": 2.0,
        "align_gap": -1.0,
        "align_mean": 2.0,
        "align_spread": np.std([2, 3, 1]),
        "align_z": 0.0,
        "per_word": 0.5,
        "per_word_gap": -0.25,
        "per_word_mean": (0.5 + 0.75 + 0.5) / 3,
        "per_word_spread": np.std([0.5, 0.75, 0.5]),
        "log_words": np.log(4),
    }
    for name, value in expected.items():
        assert features[name] == pytest.approx(value, abs=1e-6), name


def test_a_hit_from_beyond_the_pool_is_compared_with_all_of_it() -> None:
    hit = CandidateScores(
        np.array([99]), np.array([0.2], np.float32), np.array([5.0], np.float32), np.array([4])
    )
    features = hit_features(POOL, hit)
    assert features["match_gap"] == pytest.approx(0.2 - 0.5)
    assert features["align_gap"] == pytest.approx(5 - 3)


def test_a_query_is_described_by_the_best_of_each_score() -> None:
    features = query_features(POOL)
    assert features["match"] == pytest.approx(0.5)
    assert features["align"] == pytest.approx(3.0)
    assert features["align_gap"] == pytest.approx(1.0)
    assert features["per_word"] == pytest.approx(0.75)
    assert features["log_words"] == pytest.approx((2 * np.log(4) + np.log(2)) / 3)
    assert all(values.shape == (1,) for values in features.values())


def test_without_alignment_the_rest_is_the_same() -> None:
    alone, both = query_features(POOL.without_alignment()), query_features(POOL)
    assert set(alone) == {name for name in both if name.startswith("match") or name == "log_words"}
    assert all(np.array_equal(alone[name], both[name]) for name in alone)


def test_a_pool_of_one_has_no_runner_up() -> None:
    features = query_features(POOL.take(slice(1)))
    assert (features["match_gap"], features["match_z"], features["match_spread"]) == (0, 0, 0)


def test_copies_have_no_spread_to_divide_by() -> None:
    copies = POOL.take(np.array([0, 0, 0]))._replace(rows=np.arange(3))
    features = query_features(copies)
    assert all(np.isfinite(values).all() for values in features.values())
    assert features["match_gap"] == 0


@pytest.mark.parametrize("aligned", [True, False])
def test_in_one_go_the_query_and_its_hits_are_described_the_same(aligned: bool) -> None:
    pool = POOL if aligned else POOL.without_alignment()
    beyond = POOL.take(slice(1))._replace(rows=np.array([99]), match=np.array([0.2], np.float32))
    hits = pool.take(slice(2)).joined(beyond if aligned else beyond.without_alignment())
    of_query, of_hits = judged_features(pool, hits)
    for found, expected in ((of_query, query_features(pool)), (of_hits, hit_features(pool, hits))):
        assert found.keys() == expected.keys()
        assert all(np.array_equal(found[name], expected[name]) for name in expected)


def test_every_set_is_made_of_known_features() -> None:
    known = set(query_features(POOL, novelty=0.0))
    assert all(
        set(names) <= known and len(set(names)) == len(names)
        for names in (*FEATURE_SETS, *NOVELTY_SETS)
    )


@settings(max_examples=25, deadline=None)
@given(
    scores=st.lists(st.floats(-1, 1, width=32), min_size=1, max_size=8),
    hits=st.lists(st.integers(0, 11), min_size=1, max_size=6),
)
def test_the_gap_is_that_of_a_loop(scores: list[float], hits: list[int]) -> None:
    match = np.array(scores, dtype=np.float32)
    pool = CandidateScores(np.arange(len(match)), match, None, np.ones(len(match), dtype=np.int64))
    own = np.array([scores[hit] if hit < len(scores) else 0.25 for hit in hits], dtype=np.float32)
    asked = CandidateScores(np.array(hits), own, None, np.ones(len(hits), dtype=np.int64))
    gaps = hit_features(pool, asked)["match_gap"]
    for hit, score, gap in zip(hits, own, gaps, strict=True):
        others = [float(each) for row, each in enumerate(match) if row != hit]
        assert gap == pytest.approx(float(score) - max(others) if others else 0.0, abs=1e-6)
