"""Calibration error, log loss and AUROC against slow references and cases worked by hand."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from aladin_network.calibration.measures import BINS, auroc, compare_auroc, log_loss, reliability

CASES = st.lists(st.tuples(st.integers(0, 20), st.booleans(), st.integers(1, 3)), min_size=2)


def test_by_hand() -> None:
    probabilities = np.array([0.1, 0.1, 0.1, 0.1, 0.8, 0.8])
    right = np.array([True, False, False, False, True, False])
    measured = reliability(probabilities, right, np.ones(6))
    # Two bins, for equal probabilities are never parted: 0.25 of four against 0.1, 0.5 of two
    # against 0.8.
    expected = 4 / 6 * 0.15 + 2 / 6 * 0.3
    assert measured.ece == pytest.approx(expected)
    assert measured.ece_equal_width == pytest.approx(expected)
    assert measured.base_rate == pytest.approx(1 / 3)
    assert measured.brier == pytest.approx((0.81 + 3 * 0.01 + 0.04 + 0.64) / 6)
    loss = -(math.log(0.1) + 3 * math.log(0.9) + math.log(0.8) + math.log(0.2)) / 6
    assert measured.log_loss == pytest.approx(loss)
    bins = [(each.predicted, each.observed, each.weight) for each in measured.bins]
    assert np.allclose(bins, [(0.1, 0.25, 4 / 6), (0.8, 0.5, 2 / 6)])


def test_bins_of_equal_mass_are_tenths_of_the_sorted_cases() -> None:
    generator = np.random.default_rng(3)
    probabilities = generator.permutation(np.linspace(0, 1, 200) ** 3)
    right = generator.random(200) < 0.5
    order = np.argsort(probabilities)
    expected = 0.0
    for part in np.array_split(order, BINS):
        expected += abs(probabilities[part].mean() - right[part].mean()) / BINS
    measured = reliability(probabilities, right, np.ones(200))
    assert measured.ece == pytest.approx(expected)
    assert len(measured.bins) == BINS


def test_bins_of_equal_width_are_those_of_a_loop() -> None:
    generator = np.random.default_rng(4)
    probabilities, right = generator.random(100), generator.random(100) < 0.4
    expected = 0.0
    for number in range(BINS):
        inside = [k for k in range(100) if number <= probabilities[k] * BINS < number + 1]
        if inside:
            share = np.mean([right[k] for k in inside])
            expected += len(inside) / 100 * abs(np.mean(probabilities[inside]) - share)
    assert reliability(probabilities, right, np.ones(100)).ece_equal_width == pytest.approx(
        expected
    )


def test_certainty_that_was_wrong_costs_much_but_not_everything() -> None:
    loss = log_loss(np.array([0.0, 1.0]), np.array([True, True]), np.ones(2))
    assert 10 < loss < 20


@settings(max_examples=30, deadline=None)
@given(CASES)
def test_a_weight_is_a_number_of_equal_cases(cases: list[tuple[int, bool, int]]) -> None:
    probabilities = np.array([score / 20 for score, _, _ in cases])
    right = np.array([each for _, each, _ in cases])
    times = np.array([each for _, _, each in cases])
    weighted = reliability(probabilities, right, times.astype(np.float64))
    repeated = reliability(
        np.repeat(probabilities, times), np.repeat(right, times), np.ones(times.sum())
    )
    for name in ("ece_equal_width", "brier", "log_loss", "base_rate"):
        assert getattr(weighted, name) == pytest.approx(getattr(repeated, name))
    if right.any() and not right.all():
        ours = auroc(probabilities, right, times.astype(np.float64))
        assert ours == pytest.approx(
            slow_auroc(np.repeat(probabilities, times), np.repeat(right, times))
        )


def slow_auroc(scores: NDArray[np.float64], right: NDArray[np.bool_]) -> float:
    pairs = [(a > b) + 0.5 * (a == b) for a in scores[right] for b in scores[~right]]
    return float(np.mean(pairs))


def test_auroc_by_hand() -> None:
    right = np.array([True, True, False, False])
    assert auroc(np.array([4.0, 2.0, 3.0, 1.0]), right) == 0.75
    assert auroc(np.array([1.0, 1.0, 1.0, 1.0]), right) == 0.5
    assert auroc(np.array([2.0, 1.0]), np.array([True, True])) == 0.5  # nothing to compare with


def test_scores_are_compared_in_the_same_draws() -> None:
    generator = np.random.default_rng(5)
    photos = np.repeat(np.arange(60), 2)
    right = np.tile([True, False], 60)
    perfect, good = right.astype(np.float64), right + generator.normal(size=120)
    compared = compare_auroc(
        {"ours": perfect, "same": 3 * perfect, "theirs": good}, right, photos, resamples=200
    )
    assert compared.auroc["ours"].value == compared.auroc["ours"].low == 1
    same = compared.gain["same"]
    assert (same.value, same.low, same.high) == (0, 0, 0)
    theirs = compared.gain["theirs"]
    assert theirs.value == pytest.approx(1 - slow_auroc(good, right))
    assert 0 < theirs.low < theirs.value < theirs.high
    assert set(compared.gain) == {"same", "theirs"}


def test_the_mean_of_two_comparisons_is_of_the_same_draws() -> None:
    """What one direction loses in a draw and the other gains cancels out."""
    generator = np.random.default_rng(8)
    right, photos = np.tile([True, False], 30), np.repeat(np.arange(30), 2)
    first, second = right + generator.normal(size=(2, 60))
    there = compare_auroc({"ours": first, "theirs": second}, right, photos, resamples=100)
    back = compare_auroc(
        {"ours": second, "other": first, "theirs": first}, right, photos, resamples=100
    )
    mean = there.mean_with(back)
    assert list(mean.auroc) == ["ours", "theirs"]
    expected = (slow_auroc(first, right) + slow_auroc(second, right)) / 2
    assert mean.auroc["ours"].value == pytest.approx(expected)
    gain = mean.gain["theirs"]
    assert np.allclose((gain.value, gain.low, gain.high), 0)


def test_photos_are_drawn_with_all_their_cases() -> None:
    """Ten copies of each case, all of one photo, say no more than one does."""
    generator = np.random.default_rng(6)
    right = np.tile([True, False], 40)
    photos = np.repeat(np.arange(40), 2)
    scores = right + generator.normal(size=80)
    once = compare_auroc({"ours": scores}, right, photos, resamples=100)
    copied = compare_auroc(
        {"ours": np.tile(scores, 10)}, np.tile(right, 10), np.tile(photos, 10), resamples=100
    )
    assert copied.auroc["ours"].low == pytest.approx(once.auroc["ours"].low)
    assert copied.auroc["ours"].high == pytest.approx(once.auroc["ours"].high)
