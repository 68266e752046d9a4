"""ProjectionMatchingLoss against loops, a hand-worked case and its properties."""

from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor

from aladin_network.errors import ConfigError, ShapeError
from aladin_training.losses.negatives import negative_mask
from aladin_training.losses.projection_matching import ProjectionMatchingLoss


def reference(scores: Tensor, negatives: Tensor, temperature: float, epsilon: float) -> Tensor:
    """Sum the divergences pair by pair, as tensors, so that autograd gives the gradient."""
    total = scores.new_zeros(())
    size = len(scores)
    for lines in ([[(q, c) for c in range(size)] for q in range(size)], None):
        queries = lines or [[(c, q) for c in range(size)] for q in range(size)]
        for cells in queries:
            exponentials = [torch.exp(temperature * scores[cell]) for cell in cells]
            normalizer = torch.stack(exponentials).sum()
            matching = sum(1 for cell in cells if not negatives[cell])
            for cell, exponential in zip(cells, exponentials, strict=True):
                p = exponential / normalizer
                share = 0.0 if negatives[cell] else 1 / matching
                total = total + p * torch.log(p / (share + epsilon)) / size
    return total


@pytest.mark.parametrize(("temperature", "epsilon"), [(10.0, 1e-8), (3.0, 1e-4)])
def test_value_and_gradient_equal_the_loops(
    pairs: tuple[Tensor, Tensor], temperature: float, epsilon: float
) -> None:
    scores, negatives = pairs
    loss = ProjectionMatchingLoss(temperature, epsilon)(scores, negatives)
    expected = reference(scores, negatives, temperature, epsilon)
    assert loss.item() == pytest.approx(expected.item(), rel=1e-10)
    ours, theirs = (torch.autograd.grad(each, scores)[0] for each in (loss, expected))
    torch.testing.assert_close(ours, theirs)


def test_two_pairs_without_an_opinion_worked_by_hand() -> None:
    # Each query: 1/2 log(1/2 / 1) + 1/2 log(1/2 / e) with e = 1e-8; two directions.
    loss = ProjectionMatchingLoss()(torch.zeros(2, 2).double(), negative_mask(torch.arange(2)))
    of_query = 0.5 * math.log(0.5) + 0.5 * math.log(0.5 / 1e-8)
    assert loss.item() == pytest.approx(2 * of_query, rel=1e-6)


def test_probability_on_two_captions_of_one_photo_costs_nothing() -> None:
    scores = torch.tensor([[0.0, 0.0], [0.0, 0.0]], dtype=torch.float64)
    loss = ProjectionMatchingLoss()(scores, negative_mask(torch.zeros(2, dtype=torch.long)))
    assert loss.item() == pytest.approx(0, abs=1e-6)


def test_impossible_input_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"positive, got 0 and 1e-08"):
        ProjectionMatchingLoss(temperature=0)
    with pytest.raises(ConfigError, match=r"positive, got 10.0 and -1"):
        ProjectionMatchingLoss(epsilon=-1)
    with pytest.raises(ShapeError, match="negatives"):
        ProjectionMatchingLoss()(torch.zeros(2, 2), torch.ones(2, 3, dtype=torch.bool))
