"""Histograms of positive and negative pairs, counted by hand."""

from __future__ import annotations

import torch

from aladin_training.comparison.evaluation import BINS, score_histogram


def test_every_pair_is_counted_once_in_its_own_bin() -> None:
    scores = torch.tensor([[1.0, 0.75, -1.0], [-0.5, 0.1, 0.2]])
    histogram = score_histogram(scores, torch.tensor([0, 0, 1]))
    assert (histogram.low, histogram.high) == (-1.0, 1.0)
    expected = {
        "positive": [1.0, 0.75, 0.2],
        "negative": [-1.0, -0.5, 0.1],
        "hardest": [-0.5, 0.1, -1.0, -1.0, 0.1],  # of the three texts, then of the two photos
    }
    for kind, values in expected.items():
        counts = [0] * BINS
        for value in values:
            counts[min(int((value + 1) / 2 * BINS + 1e-6), BINS - 1)] += 1
        assert getattr(histogram, kind).tolist() == counts
    assert len(histogram.edges()) == BINS + 1


def test_a_network_that_says_the_same_of_all_pairs() -> None:
    histogram = score_histogram(torch.zeros(2, 2), torch.tensor([0, 1]))
    assert histogram.positive.sum() == 2
    assert histogram.negative.sum() == 2
    assert histogram.low < histogram.high


def test_queries_without_a_negative_have_no_hardest_one() -> None:
    histogram = score_histogram(torch.tensor([[0.5, 0.25]]), torch.tensor([0, 0]))
    assert histogram.hardest.sum() == 0
    assert histogram.positive.sum() == 2
