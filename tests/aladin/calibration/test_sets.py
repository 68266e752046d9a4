"""Thresholds of prediction sets against counts, and their cover on other queries."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from aladin_network.calibration.examples import AskedQuery, make_examples
from aladin_network.calibration.logistic_fit import fit_logistic
from aladin_network.calibration.set_fit import (
    find_right_answers,
    measure_by_halves,
    measure_sets,
)
from aladin_network.calibration.sets import fit_sets

DrawQueries = Callable[..., list[AskedQuery]]


def test_a_threshold_is_the_probability_that_enough_right_answers_have() -> None:
    own = np.arange(1, 100) / 100  # 99 queries: of 100 with a new one, each place is as likely
    sets = fit_sets(own, items=7)
    assert (sets.items, sets.most) == (7, 0.99)
    for confidence in (0.5, 0.55, 0.9, 0.99):
        least = sets.threshold(confidence)
        assert (own >= least).sum() == round(100 * confidence)
        assert sets.level(confidence) == confidence
    assert sets.threshold(0.891) == sets.threshold(0.9)


def test_confidences_beyond_what_queries_support_have_no_threshold() -> None:
    rng = np.random.default_rng(0)
    # Nine right answers of ten can hold 9 of 11 new ones: 81 %, not 82 %.
    assert fit_sets(np.append(rng.random(9), -np.inf), items=1).most == 0.81
    # With ten of ten it is 10 of 11.
    assert fit_sets(rng.random(10), items=1).most == 0.9
    assert fit_sets(np.full(10, -np.inf), items=1).most == 0.0


def test_new_queries_are_covered_as_often_as_promised() -> None:
    rng = np.random.default_rng(1)
    covered = []
    for _ in range(400):
        fitted, new = rng.random(50) ** 3, rng.random(50) ** 3
        covered.append((new >= fit_sets(fitted, items=1).threshold(0.8)).mean())
    assert np.mean(covered) == pytest.approx(0.8, abs=0.02)


def test_figures_are_those_of_sets_counted_one_by_one(draw_queries: DrawQueries) -> None:
    queries = draw_queries(80, items=12, seed=5)
    examples = make_examples(queries, 100, 0.5, None)
    model = fit_logistic(examples.hits, "hits")
    found = find_right_answers(queries, model, None)
    is_fitted = found.photos % 2 == 0
    figures = measure_sets(found.take(is_fitted), found.take(~is_fitted))
    assert figures is not None
    least = fit_sets(found.own[is_fitted], items=12).threshold(0.9)
    matched = [query for query in queries if query.has_match]
    sizes = [int((of >= least).sum()) for of in found.others[~is_fitted]]
    holds = [
        bool((of[: len(query.right)][query.right] >= least).any())
        for query, of, fit in zip(matched, found.others, is_fitted, strict=True)
        if not fit
    ]
    assert figures.cover == pytest.approx(np.mean(holds))
    assert figures.size == pytest.approx(np.mean(sizes))
    assert figures.fixed_size <= 12
    halves = measure_by_halves(queries, examples.hits, "sets", None)
    assert halves is not None
    assert 0.75 <= halves.cover <= 1
    assert halves.size < 12
