"""What a calibration says of an answer."""

from __future__ import annotations

import numpy as np
import pytest

from aladin_network.calibration.calibration import DirectionCalibration, ProbabilityModels
from aladin_network.calibration.features import CandidateScores, Feature, LogisticModel, Term

POOL = CandidateScores(
    rows=np.array([7, 3]),
    match=np.array([0.5, 0.3], dtype=np.float32),
    align=np.array([2.0, 3.0], dtype=np.float32),
    words=np.array([4, 4]),
)


def model(feature: Feature, weight: float) -> LogisticModel:
    return LogisticModel(
        intercept=0.0, terms=[Term(feature=feature, mean=0.0, deviation=1.0, weight=weight)]
    )


CALIBRATION = DirectionCalibration(
    aligned=ProbabilityModels(
        hit=model("align", 1.0), match=model("align_gap", 1.0), no_match_below=0.8
    ),
    matching=ProbabilityModels(
        hit=model("match", 1.0), match=model("match_gap", 1.0), no_match_below=0.5
    ),
)


def sigmoid(log_odds: float) -> float:
    return 1 / (1 + np.exp(-log_odds))


def test_both_questions_are_answered() -> None:
    judgement = CALIBRATION.judge(POOL, POOL.take(np.array([1])))
    assert judgement.match_probability == pytest.approx(sigmoid(1.0))
    assert judgement.no_match  # 0.731 is below 0.8
    assert judgement.probabilities == pytest.approx([sigmoid(3.0)])


@pytest.mark.parametrize("lacking", ["pool", "hits", "both"])
def test_without_alignment_scores_the_matching_scores_decide(lacking: str) -> None:
    pool = POOL if lacking == "hits" else POOL.without_alignment()
    hits = POOL if lacking == "pool" else POOL.without_alignment()
    judgement = CALIBRATION.judge(pool, hits)
    assert judgement.match_probability == pytest.approx(sigmoid(0.2))
    assert not judgement.no_match  # 0.550 is not below 0.5
    assert judgement.probabilities == pytest.approx([sigmoid(0.5), sigmoid(0.3)])


def test_where_nothing_was_searched_nothing_matches() -> None:
    nothing = POOL.take(slice(0))
    judgement = CALIBRATION.judge(nothing, nothing)
    assert (judgement.match_probability, judgement.no_match) == (0, True)
    assert judgement.probabilities.shape == (0,)


def test_a_page_may_be_empty() -> None:
    judgement = CALIBRATION.judge(POOL, POOL.take(slice(0)))
    assert judgement.match_probability == pytest.approx(sigmoid(1.0))
    assert judgement.probabilities.shape == (0,)
