"""The fit: a known law is found again, no photo is in two folds, and nothing diverges."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from aladin_network.calibration.examples import Examples
from aladin_network.calibration.features import LogisticModel
from aladin_network.calibration.logistic_fit import fit_logistic, out_of_fold, photo_folds
from aladin_network.errors import InputError


def law(match: NDArray[np.float64], words: NDArray[np.float64]) -> NDArray[np.float64]:
    return 1 / (1 + np.exp(-(20 * (match - 0.3) - 1.5 * (words - 2))))


def drawn(count: int, photos: int, seed: int = 0) -> Examples:
    """Cases that are right with the probability of `law`."""
    generator = np.random.default_rng(seed)
    match, words = generator.normal(0.3, 0.1, count), generator.normal(2, 0.4, count)
    return Examples(
        features={"match": match, "log_words": words, "match_gap": generator.normal(size=count)},
        right=generator.random(count) < law(match, words),
        photos=np.arange(count) % photos,
        weights=np.ones(count),
        kinds=np.zeros(count, dtype=np.int8),
    )


def one_model(examples: Examples, what: str) -> list[LogisticModel]:
    return [fit_logistic(examples, what)]


def test_a_known_law_is_found_again() -> None:
    model = fit_logistic(drawn(4000, 400), "cases")
    weights = {term.feature: term.weight / term.deviation for term in model.terms}
    assert weights["match"] == pytest.approx(20, rel=0.1)
    assert weights["log_words"] == pytest.approx(-1.5, rel=0.15)
    fresh = drawn(500, 50, seed=1)
    expected = law(fresh.features["match"], fresh.features["log_words"])
    assert np.abs(model.probability(fresh.features) - expected).max() < 0.06


def test_the_numbers_are_those_of_scikit_learn() -> None:
    examples = drawn(300, 60)
    model = fit_logistic(examples, "cases")
    values = np.stack([examples.features[term.feature] for term in model.terms], axis=1)

    def differs(inverse_penalty: float) -> float:
        regression: Any = LogisticRegression(C=inverse_penalty, tol=1e-10, max_iter=1000)
        pipeline: Any = make_pipeline(StandardScaler(), regression).fit(values, examples.right)
        expected = pipeline.predict_proba(values)[:, 1]
        return float(np.abs(model.probability(examples.features) - expected).max())

    assert min(differs(0.01), differs(1.0)) < 1e-6


def test_weights_count_as_copies_do() -> None:
    examples = drawn(200, 40)
    twice = np.concatenate([np.arange(200), np.arange(100)])
    weights = np.where(np.arange(200) < 100, 2.0, 1.0)
    weighted = replace(examples, weights=weights)
    ours, copied = fit_logistic(weighted, "cases"), fit_logistic(examples.take(twice), "cases")
    features = examples.features
    assert np.abs(ours.probability(features) - copied.probability(features)).max() < 0.02


def test_separable_cases_stay_finite() -> None:
    match = np.linspace(0, 1, 100)
    examples = Examples(
        features={"match": match, "match_mean": np.zeros(100), "log_words": 2 * match},
        right=match > 0.5,
        photos=np.random.default_rng(0).permutation(100),
        weights=np.ones(100),
        kinds=np.zeros(100, dtype=np.int8),
    )
    probabilities = out_of_fold(examples, "cases", one_model)
    assert np.isfinite(probabilities).all()
    assert ((probabilities > 0.5) == examples.right).mean() > 0.95


@settings(max_examples=20, deadline=None)
@given(st.lists(st.integers(0, 11), max_size=60))
def test_all_cases_of_a_photo_are_in_one_fold(more: list[int]) -> None:
    # Each photo has a right and a wrong case at least.
    photos = np.array([*range(12), *range(12), *more])
    examples = Examples(
        features={"match": np.zeros(len(photos))},
        right=np.arange(len(photos)) < 12,
        photos=photos,
        weights=np.ones(len(photos)),
        kinds=np.zeros(len(photos), dtype=np.int8),
    )
    tested: list[int] = []
    for train, test in photo_folds(examples, 5, "cases"):
        assert not set(photos[train]) & set(photos[test])
        assert sorted([*train, *test]) == list(range(len(photos)))
        tested += test.tolist()
    assert sorted(tested) == list(range(len(photos)))


def test_a_photo_is_judged_by_models_that_never_saw_it() -> None:
    """Whatever the answers of a photo are, its probabilities stay the same."""
    examples = drawn(200, 40)
    before = out_of_fold(examples, "cases", one_model)
    own = examples.photos == 3
    turned = replace(examples, right=np.where(own, ~examples.right, examples.right))
    after = out_of_fold(turned, "cases", one_model)
    assert np.array_equal(before[own], after[own])
    assert not np.array_equal(before[~own], after[~own])


def test_too_few_photos_are_refused() -> None:
    with pytest.raises(InputError, match="hits: expected at least 5 photos, found 4"):
        fit_logistic(drawn(40, 4), "hits")


def test_cases_of_one_kind_are_refused() -> None:
    examples = drawn(40, 20)
    examples.right[:] = False
    with pytest.raises(InputError, match="hits: expected right and wrong ones in every fold"):
        fit_logistic(examples, "hits")
