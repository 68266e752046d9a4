"""DarkRankLoss against loops, a hand-worked case and its properties."""

from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor

from aladin_network.errors import ConfigError, ShapeError
from aladin_training.losses.dark_rank import DarkRankLoss


@pytest.fixture
def pair(size: int) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(size)
    student, teacher = 2 * torch.rand(2, size, size, generator=generator, dtype=torch.float64) - 1
    return student.requires_grad_(), teacher.requires_grad_()


def reference(
    student: Tensor, teacher: Tensor, alpha: float, beta: float, length: int, of_score: bool
) -> Tensor:
    """Give the value by loops over queries and places, as a tensor with a gradient."""

    def negated(score: Tensor) -> Tensor:
        return -alpha * (score if of_score else 1 - score) ** beta

    total = student.new_zeros(())
    for s, t in ((student, teacher), (student.T, teacher.T)):
        for own, others in zip(s, t, strict=True):
            ranked = sorted(range(len(own)), key=lambda c: -negated(others[c]).item())
            chosen = [negated(own[c]) for c in ranked[1 : length + 1]]
            for place, x in enumerate(chosen):
                below = torch.stack([each.exp() for each in chosen[place:]]).sum()
                total = total - (x - below.log()) / len(s)
    return total


@pytest.mark.parametrize("distance", ["cosine", "score"])
@pytest.mark.parametrize(("alpha", "beta", "length"), [(3.0, 3.0, 4), (1.0, 1.0, 2)])
def test_value_and_gradient_equal_the_loops(
    pair: tuple[Tensor, Tensor], alpha: float, beta: float, length: int, distance: str
) -> None:
    student, teacher = pair
    loss = DarkRankLoss(alpha, beta, length, distance)(student, teacher)  # type: ignore[arg-type]
    expected = reference(student, teacher, alpha, beta, length, distance == "score")
    assert loss.item() == pytest.approx(expected.item(), rel=1e-10)
    ours, theirs = (torch.autograd.grad(each, student)[0] for each in (loss, expected))
    torch.testing.assert_close(ours, theirs)
    assert teacher.grad is None


def test_the_first_place_is_left_out_and_the_next_two_worked_by_hand() -> None:
    teacher = torch.tensor([[0.9, 0.5, 0.1]], dtype=torch.float64)
    student = torch.tensor([[-1.0, 0.0, 1.0]], dtype=torch.float64)
    # Places 2 and 3: texts 1 and 2, x = -1 and 0. Each text has one image: nothing to rank.
    loss = DarkRankLoss(alpha=1.0, beta=1.0)(student, teacher)
    assert loss.item() == pytest.approx(1 + math.log(math.exp(-1) + 1))


def test_the_teacher_s_own_order_costs_least_where_it_is_sharp() -> None:
    teacher = torch.tensor([[0.9, 0.6, 0.1, -0.5]], dtype=torch.float64)
    loss = DarkRankLoss(alpha=20.0)
    reversed_order = teacher.flip(1)
    assert loss(teacher, teacher).item() < 0.1 < loss(reversed_order, teacher).item()


def test_official_distance_puts_the_least_similar_first() -> None:
    teacher = torch.tensor([[0.9, 0.5, 0.1]], dtype=torch.float64)
    student = torch.tensor([[1.0, 0.5, 7.0]], dtype=torch.float64)
    # The order is 2, 1, 0, of which 2 is left out: x = -.5 and -1.
    loss = DarkRankLoss(alpha=1.0, beta=1.0, distance="score")(student, teacher)
    assert loss.item() == pytest.approx(0.5 + math.log(math.exp(-0.5) + math.exp(-1)))


def test_one_pair_costs_nothing() -> None:
    student = torch.tensor([[0.3]], requires_grad=True)
    loss = DarkRankLoss()(student, torch.tensor([[0.5]]))
    loss.backward()
    assert loss.item() == 0
    assert student.grad.item() == 0


def test_impossible_options_and_input_are_refused() -> None:
    with pytest.raises(ConfigError, match="unknown distance 'l2'"):
        DarkRankLoss(distance="l2")  # type: ignore[arg-type]
    with pytest.raises(ConfigError, match=r"got 3.0, 3.0 and 1"):
        DarkRankLoss(length=1)
    with pytest.raises(ShapeError, match=r"\(2, 3\), got \(3, 2\)"):
        DarkRankLoss()(torch.zeros(2, 3), torch.zeros(3, 2))
