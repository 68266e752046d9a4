"""TripletMarginLoss: hand-worked numbers, finite differences and its invariances."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from aladin_network.errors import ShapeError
from aladin_training.losses.negatives import negative_mask
from aladin_training.losses.triplet import TripletMarginLoss
from tests.training.losses import equations


@pytest.fixture
def batch() -> tuple[Tensor, Tensor]:
    """Seven pairs of five images, scores on both sides of the margin."""
    generator = torch.Generator().manual_seed(3)
    scores = torch.rand(7, 7, generator=generator, dtype=torch.float64)
    scores = (scores + 0.5 * torch.eye(7, dtype=torch.float64)).requires_grad_()
    return scores, negative_mask(torch.tensor([0, 1, 2, 0, 3, 4, 2]))


def test_two_pairs_worked_by_hand() -> None:
    scores = torch.tensor([[0.5, 0.4], [0.1, 0.7]], requires_grad=True)
    loss = TripletMarginLoss(margin=0.2)(scores, negative_mask(torch.arange(2)))
    # image 0: .2+.4-.5 = .1; image 1: .2+.1-.7 < 0; text 0: .2+.1-.5 < 0; text 1: .2+.4-.7 < 0
    assert loss.item() == pytest.approx(0.1)
    loss.backward()
    assert scores.grad is not None
    assert scores.grad.tolist() == [[-1.0, 1.0], [0.0, 0.0]]


@pytest.mark.parametrize("hardest", [True, False])
def test_gradient_agrees_with_finite_differences(
    batch: tuple[Tensor, Tensor], hardest: bool
) -> None:
    scores, negatives = batch
    assert torch.autograd.gradcheck(
        lambda values: TripletMarginLoss(0.2, hardest)(values, negatives), (scores,)
    )


def test_the_hardest_negative_alone_never_costs_more(batch: tuple[Tensor, Tensor]) -> None:
    hardest, all_negatives = TripletMarginLoss(0.2, True), TripletMarginLoss(0.2, False)
    assert hardest(*batch).item() < all_negatives(*batch).item()


@pytest.mark.parametrize("hardest", [True, False])
def test_order_of_the_pairs_does_not_matter(batch: tuple[Tensor, Tensor], hardest: bool) -> None:
    scores, negatives = batch
    order = torch.tensor([4, 2, 6, 0, 1, 5, 3])
    loss = TripletMarginLoss(0.2, hardest)
    shuffled = loss(scores[order][:, order], negatives[order][:, order])
    torch.testing.assert_close(shuffled, loss(scores, negatives))


@pytest.mark.parametrize("hardest", [True, False])
@pytest.mark.parametrize("size", [1, 4])
def test_a_batch_of_one_image_costs_nothing(hardest: bool, size: int) -> None:
    scores = torch.randn(size, size, requires_grad=True)
    negatives = negative_mask(torch.zeros(size, dtype=torch.long))
    loss = TripletMarginLoss(0.2, hardest)(scores, negatives)
    loss.backward()
    assert loss.item() == 0.0
    assert scores.grad is not None
    assert torch.equal(scores.grad, torch.zeros(size, size))


@pytest.mark.parametrize("hardest", [True, False])
def test_unique_images_with_all_their_captions(hardest: bool) -> None:
    scores = torch.rand(3, 5, dtype=torch.float64, requires_grad=True)
    image_of_text = torch.tensor([0, 0, 1, 2, 2])
    negatives = negative_mask(torch.arange(3), image_of_text)
    positives = torch.stack([image_of_text, torch.arange(5)], dim=1)
    loss = TripletMarginLoss(0.2, hardest)(scores, negatives, positives)
    pairs = [(int(i), int(t)) for i, t in positives]
    expected = equations.triplet(scores, negatives, pairs, 0.2, hardest)
    torch.testing.assert_close(loss, expected)
    loss.backward()
    assert scores.grad is not None
    assert bool(scores.grad.isfinite().all())


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
