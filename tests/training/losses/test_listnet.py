"""ListNetLoss: hand-worked numbers, its gradient's formula and its invariances."""

from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor

from aladin_network.errors import ConfigError, ShapeError
from aladin_training.losses.listnet import ListNetLoss


@pytest.fixture
def pair() -> tuple[Tensor, Tensor]:
    """Student cosines and teacher scores of 4 images and 6 texts."""
    generator = torch.Generator().manual_seed(11)
    student = torch.rand(4, 6, generator=generator, dtype=torch.float64) * 2 - 1
    teacher = torch.randn(4, 6, generator=generator, dtype=torch.float64) * 3
    return student.requires_grad_(), teacher.requires_grad_()


def test_two_by_two_worked_by_hand() -> None:
    student = torch.zeros(2, 2, dtype=torch.float64)
    teacher = torch.tensor([[math.log(3.0), 0.0], [0.0, 0.0]], dtype=torch.float64)
    # A student without an opinion costs log 2 a query, whatever the teacher thinks.
    assert ListNetLoss()(student, teacher).item() == pytest.approx(2 * math.log(2))
    student = torch.tensor([[1.0, 0.0], [0.0, 0.0]], dtype=torch.float64)
    # Query 0 of each direction: P = (3/4, 1/4), Q = softmax(6, 0). Query 1: log 2.
    query_0 = -(0.75 * -math.log1p(math.exp(-6)) + 0.25 * (-6 - math.log1p(math.exp(-6))))
    assert ListNetLoss()(student, teacher).item() == pytest.approx(query_0 + math.log(2))


def test_the_teacher_gets_no_gradient(pair: tuple[Tensor, Tensor]) -> None:
    student, teacher = pair
    ListNetLoss()(student, teacher).backward()
    assert teacher.grad is None


def test_gradient_vanishes_where_the_student_agrees(pair: tuple[Tensor, Tensor]) -> None:
    student, _ = pair
    ListNetLoss(6.0)(student, 6.0 * student).backward()
    torch.testing.assert_close(student.grad, torch.zeros_like(student))


def test_shifting_the_whole_teacher_changes_nothing(pair: tuple[Tensor, Tensor]) -> None:
    student, teacher = pair
    loss = ListNetLoss()
    torch.testing.assert_close(loss(student, teacher + 17.0), loss(student, teacher))


def test_one_pair_costs_nothing() -> None:
    student = torch.tensor([[0.3]], requires_grad=True)
    loss = ListNetLoss()(student, torch.tensor([[5.0]]))
    loss.backward()
    assert loss.item() == 0.0
    assert student.grad is not None
    assert student.grad.item() == 0.0


def test_a_very_sure_teacher_keeps_everything_finite() -> None:
    student = torch.tensor([[1.0, -1.0], [-1.0, 1.0]], requires_grad=True)
    teacher = torch.tensor([[-500.0, 500.0], [500.0, -500.0]])
    loss = ListNetLoss(temperature=100.0)(student, teacher)
    loss.backward()
    assert loss.item() == pytest.approx(400.0)
    assert student.grad is not None
    assert bool(student.grad.isfinite().all())


def test_impossible_input_is_refused() -> None:
    with pytest.raises(ShapeError, match=r"\(2, 3\), got \(3, 2\)"):
        ListNetLoss()(torch.zeros(2, 3), torch.zeros(3, 2))
    with pytest.raises(ConfigError, match="positive, got -6"):
        ListNetLoss(temperature=-6)
    with pytest.raises(ConfigError, match=r"got 6\.0 and 0"):
        ListNetLoss(teacher_scale=0)
