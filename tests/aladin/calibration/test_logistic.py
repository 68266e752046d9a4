"""Logistic models as plain numbers."""

from __future__ import annotations

import math

import numpy as np
import pytest
from numpy.typing import NDArray

from aladin_network.calibration.features import (
    Feature,
    LogisticModel,
    Term,
    probability_of_all,
)

MODEL = LogisticModel(
    intercept=-1.0,
    terms=[
        Term(feature="match", mean=0.2, deviation=0.1, weight=2.0),
        Term(feature="log_words", mean=1.0, deviation=0.5, weight=-0.5),
    ],
)


def test_the_log_odds_are_linear_in_standardised_features() -> None:
    features = {"match": np.array([0.2, 0.3]), "log_words": np.array([1.0, 2.0])}
    log_odds = [-1.0, -1.0 + 2.0 - 1.0]
    expected = [1 / (1 + math.exp(-each)) for each in log_odds]
    assert MODEL.probability(features) == pytest.approx(expected, abs=1e-12)


def test_other_features_are_not_looked_at() -> None:
    features = {"match": np.array([0.2]), "log_words": np.array([1.0]), "align": np.array([np.nan])}
    assert np.isfinite(MODEL.probability(features)).all()


def test_extreme_scores_are_certain_and_do_not_overflow() -> None:
    features = {"match": np.array([-1e6, 1e6]), "log_words": np.ones(2)}
    assert MODEL.probability(features).tolist() == [0.0, 1.0]


def test_the_odds_against_several_alternatives_are_averaged() -> None:
    """Odds of 3 and of 1 to 2: one in three and two in one against, on average 7 to 6."""
    models = [
        LogisticModel(intercept=intercept, terms=[]) for intercept in (np.log(3), np.log(1 / 2))
    ]
    features: dict[Feature, NDArray[np.float64]] = {"match": np.zeros(2)}
    assert probability_of_all(models, features) == pytest.approx([6 / 13, 6 / 13])
    assert probability_of_all(models[:1], features) == pytest.approx([3 / 4, 3 / 4])
    hopeless = [*models, LogisticModel(intercept=-2000.0, terms=[])]
    assert probability_of_all(hopeless, features).tolist() == [0, 0]
