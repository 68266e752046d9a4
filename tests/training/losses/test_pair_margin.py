"""PairMarginLoss against a loop, a hand-worked case, and its gradient."""

from __future__ import annotations

import pytest
import torch

from aladin_network.errors import ShapeError
from aladin_training.losses.pair_margin import PairMarginLoss


def test_hand_worked_case() -> None:
    pair, exchanged = torch.tensor([0.75, 0.5, 0.25]), torch.tensor([0.25, 0.4, 0.5])
    # .2 + .25 - .75 < 0,  .2 + .4 - .5 = .1,  .2 + .5 - .25 = .45
    assert PairMarginLoss()(pair, exchanged).item() == pytest.approx(0.55)
    assert PairMarginLoss(margin=0)(pair, exchanged).item() == pytest.approx(0.25)


@pytest.mark.parametrize("margin", [0.2, 0.5])
def test_value_and_gradient_equal_the_loop(margin: float) -> None:
    generator = torch.Generator().manual_seed(3)
    pair, exchanged = torch.rand(2, 30, generator=generator, dtype=torch.float64)
    pair.requires_grad_()
    exchanged.requires_grad_()
    loss = PairMarginLoss(margin)(pair, exchanged)
    loss.backward()
    total = 0.0
    for row in range(30):
        cost = margin + exchanged[row].item() - pair[row].item()
        total += max(cost, 0)
        assert pair.grad is not None
        assert exchanged.grad is not None
        assert pair.grad[row].item() == (-1 if cost > 0 else 0)
        assert exchanged.grad[row].item() == (1 if cost > 0 else 0)
    assert loss.item() == pytest.approx(total, rel=1e-12)


def test_no_pairs_cost_nothing() -> None:
    assert PairMarginLoss()(torch.zeros(0), torch.zeros(0)).item() == 0


def test_scores_that_would_broadcast_are_refused() -> None:
    with pytest.raises(ShapeError, match=r"exchanged_scores \(3,\)"):
        PairMarginLoss()(torch.zeros(3), torch.zeros(1))
