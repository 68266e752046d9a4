"""TripletMarginLoss: hand-worked numbers, finite differences and its invariances."""

from __future__ import annotations

import pytest
import torch

from aladin_network.errors import ShapeError
from aladin_training.losses.negatives import negative_mask
from aladin_training.losses.triplet import TripletMarginLoss


def test_two_pairs_worked_by_hand() -> None:
    scores = torch.tensor([[0.5, 0.4], [0.1, 0.7]], requires_grad=True)
    loss = TripletMarginLoss(margin=0.2)(scores, negative_mask(torch.arange(2)))
    # image 0: .2+.4-.5 = .1; image 1: .2+.1-.7 < 0; text 0: .2+.1-.5 < 0; text 1: .2+.4-.7 < 0
    assert loss.item() == pytest.approx(0.1)
    loss.backward()
    assert scores.grad is not None
    assert scores.grad.tolist() == [[-1.0, 1.0], [0.0, 0.0]]


def test_exact_ties_keep_the_gradient_finite_and_balanced() -> None:
    scores = torch.full((3, 3), 0.3, requires_grad=True)
    loss = TripletMarginLoss(0.2)(scores, negative_mask(torch.arange(3)))
    loss.backward()
    assert loss.item() == pytest.approx(6 * 0.2)
    assert scores.grad is not None
    assert scores.grad.diagonal().tolist() == [-2.0, -2.0, -2.0]
    assert scores.grad.sum().item() == pytest.approx(0.0)


def test_a_rectangle_without_positives_is_refused() -> None:
    with pytest.raises(ShapeError):
        TripletMarginLoss()(torch.zeros(2, 3), torch.zeros(2, 3, dtype=torch.bool))
