"""PolynomialLoss against loops with the gradient's formula, and a hand-worked case."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from aladin_network.errors import ConfigError, ShapeError
from aladin_training.losses.negatives import negative_mask
from aladin_training.losses.polynomial import PolynomialLoss


def reference(scores: Tensor, negatives: Tensor, margin: float) -> tuple[float, Tensor]:
    """Give the value and the gradient by loops over queries, with the default polynomials."""
    S, size = scores.tolist(), len(scores)
    total, gradient = 0.0, torch.zeros(size, size, dtype=torch.float64)
    for n in range(size):
        p = S[n][n]
        for cells in (
            [(n, u) for u in range(size) if negatives[n, u]],
            [(j, n) for j in range(size) if negatives[j, n]],
        ):
            near = [cell for cell in cells if S[cell[0]][cell[1]] + margin > p]
            if not near or p >= 1 - 1e-5:
                continue
            hardest = max(near, key=lambda cell: S[cell[0]][cell[1]])
            q = S[hardest[0]][hardest[1]]
            for value, slope, cell in (
                (0.5 - 0.7 * p + 0.2 * p**2, 0.4 * p - 0.7, (n, n)),
                (0.03 - 0.4 * q + 0.9 * q**2, 1.8 * q - 0.4, hardest),
            ):
                if value > 0:
                    total += value / size
                    gradient[cell] += slope / size
    return total, gradient


@pytest.mark.parametrize("margin", [0.2, 0.0, 1.0])
def test_equals_the_loops(pairs: tuple[Tensor, Tensor], margin: float) -> None:
    scores, negatives = pairs
    loss = PolynomialLoss(margin)(scores, negatives)
    loss.backward()
    value, gradient = reference(scores, negatives, margin)
    assert loss.item() == pytest.approx(value, abs=1e-12)
    torch.testing.assert_close(scores.grad, gradient)


def test_two_pairs_worked_by_hand() -> None:
    scores = torch.tensor([[0.6, 0.5], [0.1, 1.0]], dtype=torch.float64)
    # Image 0: p .6 (.5 - .42 + .072), q .5 (.03 - .2 + .225). Text 0: .1 + .2 < .6.
    # Image 1 and text 1: nothing left to gain from a score of 1.
    loss = PolynomialLoss()(scores, negative_mask(torch.arange(2)))
    assert loss.item() == pytest.approx((0.152 + 0.055) / 2)


def test_other_polynomials() -> None:
    scores = torch.tensor([[0.5, 0.4], [0.0, 0.9]], dtype=torch.float64)
    loss = PolynomialLoss(margin=0.2, positive=[1.0], negative=[0.0, 0.0, 0.0, 2.0])
    # Only image 0 has a negative within the margin: 1 + 2 * .4 ^ 3.
    assert loss(scores, negative_mask(torch.arange(2))).item() == pytest.approx(1.128 / 2)


@pytest.mark.parametrize("size", [1, 4])
def test_a_batch_of_one_image_costs_nothing(size: int) -> None:
    scores = torch.full((size, size), 0.5, requires_grad=True)
    loss = PolynomialLoss()(scores, negative_mask(torch.zeros(size, dtype=torch.long)))
    loss.backward()
    assert loss.item() == 0
    assert torch.equal(scores.grad, torch.zeros(size, size))


def test_impossible_input_is_refused() -> None:
    with pytest.raises(ConfigError, match="at least one coefficient"):
        PolynomialLoss(positive=())
    with pytest.raises(ShapeError, match=r"\(batch, batch\), got \(2, 3\)"):
        PolynomialLoss()(torch.zeros(2, 3), torch.ones(2, 3, dtype=torch.bool))
