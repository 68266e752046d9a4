"""GradientObjective against loops, and against the losses whose gradients it contains."""

from __future__ import annotations

import math
from itertools import product

import pytest
import torch
from torch import Tensor
from torch.nn import functional as F

from aladin_network.errors import ConfigError, ShapeError
from aladin_training.losses.gradient import GradientObjective
from aladin_training.losses.negatives import negative_mask
from aladin_training.losses.triplet import TripletMarginLoss

TRIPLET_WEIGHTS = ["con", "nca", "cir"]
PAIR_WEIGHTS = ["con", "lin", "sig", "lin_ms", "sig_ms"]
COMBINATIONS = list(product(TRIPLET_WEIGHTS, PAIR_WEIGHTS))


def test_several_captions_worked_by_hand() -> None:
    # Three photos with two captions each; only text 0 has a say here: of photos 1 and 2, which
    # are its negatives, photo 1 is the hardest with q = .4, and N holds photo 2 alone, R = .2.
    # Photo 1 is not a second time in N, as a copy of its row would be.
    scores = torch.zeros(3, 6, dtype=torch.float64)
    scores[:, 0] = torch.tensor([0.5, 0.4, 0.2])
    positives = torch.stack([torch.arange(6) // 2, torch.arange(6)], dim=1)
    scores[positives[:, 0], positives[:, 1]] = 0.5
    negatives = torch.zeros(3, 6, dtype=torch.bool)
    negatives[1:, 0] = True
    scores.requires_grad_()
    objective = GradientObjective("con", "sig_ms", gate=False, epsilon=0.4)
    objective(scores, negatives, positives).backward()
    pushed_by_text = 1 / (math.exp(-10 * (0.4 - 0.2)) + math.exp(-10 * (0.4 - 0.5)))
    # Both captions of photos 1 and 2 make these images queries with text 0 as the hardest and
    # only negative: with N empty, m- = 0.
    pushed_by_images = [2 / math.exp(-10 * (q - 0.5)) for q in (0.4, 0.2)]
    assert scores.grad is not None
    assert scores.grad[1, 0].item() == pytest.approx(pushed_by_text + pushed_by_images[0])
    assert scores.grad[2, 0].item() == pytest.approx(pushed_by_images[1])


def test_two_pairs_worked_by_hand() -> None:
    values = torch.tensor([[0.5, 0.4], [-0.1, 0.8]], dtype=torch.float64)
    scores, negatives = values.requires_grad_(), negative_mask(torch.arange(2))
    # p, q: image 0 (.5, .4), image 1 (.8, -.1), text 0 (.5, -.1), text 1 (.8, .4).
    # The gate leaves image 0 alone: .2 + .4 - .5 > 0.
    loss = GradientObjective("con", "lin")(scores, negatives)
    loss.backward()
    assert loss.item() == pytest.approx(-0.1 - 0.9 - 0.6 - 0.4)
    expected = torch.tensor([[-0.5, 0.4], [0.0, 0.0]], dtype=torch.float64)
    torch.testing.assert_close(scores.grad, expected)
    # Without it every query pulls by 1 - p and pushes by q, and a negative q < 0 is pulled.
    scores.grad = None
    GradientObjective("con", "lin", gate=False)(scores, negatives).backward()
    expected = torch.tensor([[-0.5 - 0.5, 0.4 + 0.4], [-0.1 - 0.1, -0.2 - 0.2]])
    torch.testing.assert_close(scores.grad, expected.double())


def test_a_triplet_satisfied_exactly_is_left_alone() -> None:
    scores = torch.tensor([[0.5, 0.25], [0.25, 0.5]], requires_grad=True)
    GradientObjective(margin=0.25)(scores, negative_mask(torch.arange(2))).backward()
    assert torch.equal(scores.grad, torch.zeros(2, 2))


def test_con_con_is_the_gradient_of_the_triplet_loss(pairs: tuple[Tensor, Tensor]) -> None:
    scores, negatives = pairs
    images = torch.randn(len(scores), 6, dtype=torch.float64, requires_grad=True)
    texts = torch.randn(len(scores), 6, dtype=torch.float64, requires_grad=True)

    def gradients(loss: GradientObjective | TripletMarginLoss) -> tuple[Tensor, ...]:
        cosines = F.normalize(images, dim=1) @ F.normalize(texts, dim=1).T
        return torch.autograd.grad(loss(cosines, negatives), (images, texts))

    torch.testing.assert_close(gradients(GradientObjective()), gradients(TripletMarginLoss()))


def hardest_negatives(scores: Tensor, negatives: Tensor) -> list[tuple[Tensor, Tensor]]:
    """List (p, q) of both directions, differentiable; every query has a negative."""
    hard = scores.masked_fill(~negatives, -9.0)
    return [(scores.diagonal(), hard.amax(1)), (scores.diagonal(), hard.amax(0))]


def test_integrable_combinations_are_the_gradients_of_their_losses(
    pairs: tuple[Tensor, Tensor],
) -> None:
    scores, negatives = pairs

    def ntxent(p: Tensor, q: Tensor) -> Tensor:  # divided by tau
        return F.softplus(10 * (q - p)) / 10

    def circle(p: Tensor, q: Tensor) -> Tensor:
        return F.softplus(10 * (q**2 - p * (2 - p))) / 20

    def deviance(p: Tensor, q: Tensor) -> Tensor:
        return F.softplus(-2 * (p - 0.5)) / 2 + F.softplus(10 * (q - 0.5)) / 10

    for loss, objective in (
        (ntxent, GradientObjective("nca", "con")),
        (circle, GradientObjective("cir", "lin")),
        (deviance, GradientObjective("con", "sig", gate=False)),
    ):
        value = sum(loss(p, q).sum() for p, q in hardest_negatives(scores, negatives))
        (expected,) = torch.autograd.grad(value, scores)
        (found,) = torch.autograd.grad(objective(scores, negatives), scores)
        torch.testing.assert_close(found, expected)


def test_the_circle_of_half_weight() -> None:
    def weight(p: float, q: float, offset: float) -> float:
        scores = torch.tensor([[p, q], [q, p]], dtype=torch.float64, requires_grad=True)
        GradientObjective("cir", circle_offset=offset)(
            scores, negative_mask(torch.arange(2))
        ).backward()
        return scores.grad[0, 1].item() / 2

    assert weight(1 - 0.6, 0.8, offset=0.0) == pytest.approx(0.5)  # (1 - p)^2 + q^2 = 1
    assert weight(0.5, 0.5, offset=0.5) == pytest.approx(0.5)  # (1 - p)^2 + q^2 = 1/2


def test_a_duplicate_similarity_is_a_member_of_its_set() -> None:
    scores = torch.full((3, 3), 0.4, dtype=torch.float64, requires_grad=True)
    GradientObjective("con", "sig_ms")(scores, negative_mask(torch.arange(3))).backward()
    # p = q = R everywhere: both means are 1.
    pull, push = 1 / (1 + math.exp(-0.2)), 1 / (1 + math.exp(1.0))
    assert scores.grad.diagonal().tolist() == pytest.approx([-2 * pull] * 3)
    assert scores.grad.sum().item() == pytest.approx(6 * (push - pull))


@pytest.mark.parametrize(("triplet_weight", "pair_weight"), COMBINATIONS)
def test_the_upstream_gradient_is_honoured(
    pairs: tuple[Tensor, Tensor], triplet_weight: str, pair_weight: str
) -> None:
    scores, negatives = pairs
    loss = GradientObjective(triplet_weight, pair_weight)
    (plain,) = torch.autograd.grad(loss(scores, negatives), scores)
    (scaled,) = torch.autograd.grad(1024 * loss(scores, negatives) + 3, scores)
    torch.testing.assert_close(scaled, 1024 * plain)


def test_overflowing_weights_show_in_the_loss() -> None:
    scores = torch.full((2, 2), 1e4, requires_grad=True)  # far from a cosine
    loss = GradientObjective("nca", "sig_ms")(scores, negative_mask(torch.arange(2)))
    assert math.isnan(loss.item())


def test_impossible_options_and_input_are_refused() -> None:
    with pytest.raises(ConfigError, match=r"unknown triplet_weight 'arc', known are .*'cir'"):
        GradientObjective("arc")
    with pytest.raises(ConfigError, match=r"unknown pair_weight 'cir', known are .*'lin_ms'"):
        GradientObjective("con", "cir")
    with pytest.raises(ShapeError, match=r"\(batch, batch\), got \(2, 3\)"):
        GradientObjective()(torch.zeros(2, 3), torch.zeros(2, 3, dtype=torch.bool))
