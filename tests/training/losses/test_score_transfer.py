"""ScoreRegressionLoss and ReverseDivergenceLoss against loops and finite differences."""

from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor, nn

from aladin_network.errors import ConfigError, ShapeError
from aladin_training.losses.listnet import ListNetLoss
from aladin_training.losses.reverse_divergence import ReverseDivergenceLoss
from aladin_training.losses.score_regression import ScoreRegressionLoss


@pytest.fixture
def pair() -> tuple[Tensor, Tensor]:
    """Cosines of 4 images and 6 texts, by a student and by a teacher."""
    generator = torch.Generator().manual_seed(5)
    student, teacher = 2 * torch.rand(2, 4, 6, generator=generator, dtype=torch.float64) - 1
    return student.requires_grad_(), teacher.requires_grad_()


def softmax(values: list[float]) -> list[float]:
    exponentials = [math.exp(value) for value in values]
    return [each / sum(exponentials) for each in exponentials]


@pytest.mark.parametrize("threshold", [1.0, 0.3])
def test_regression_is_huber_s_mean(pair: tuple[Tensor, Tensor], threshold: float) -> None:
    student, teacher = pair
    loss = ScoreRegressionLoss(threshold)(student, teacher)
    loss.backward()
    total, gradient = 0.0, torch.zeros(4, 6, dtype=torch.float64)
    for i in range(4):
        for t in range(6):
            d = student[i, t].item() - teacher[i, t].item()
            near = abs(d) < threshold
            total += (d * d / (2 * threshold) if near else abs(d) - threshold / 2) / 24
            gradient[i, t] = (d / threshold if near else math.copysign(1, d)) / 24
    assert loss.item() == pytest.approx(total, rel=1e-12)
    torch.testing.assert_close(student.grad, gradient)


@pytest.mark.parametrize("temperature", [10.0, 2.0])
def test_divergence_equals_the_loops(pair: tuple[Tensor, Tensor], temperature: float) -> None:
    student, teacher = pair
    expected = 0.0
    for s, t in ((student, teacher), (student.T, teacher.T)):
        for own, others in zip(s.tolist(), t.tolist(), strict=True):
            q = softmax([temperature * each for each in own])
            p = softmax([temperature * each for each in others])
            expected += sum(a * math.log(a / b) for a, b in zip(q, p, strict=True)) / len(s)
    loss = ReverseDivergenceLoss(temperature)
    assert loss(student, teacher).item() == pytest.approx(expected, rel=1e-10)
    assert torch.autograd.gradcheck(lambda each: loss(each, teacher), (student,))


def test_dml_and_dino_are_listnet_with_both_factors_alike(pair: tuple[Tensor, Tensor]) -> None:
    """The divergence from P to Q, and the cross-entropy: listnet, but for the teacher's entropy."""
    student, teacher = pair
    listnet = ListNetLoss(temperature=10, teacher_scale=10)(student, teacher)
    divergence = entropy = 0.0
    for s, t in ((student, teacher), (student.T, teacher.T)):
        for own, others in zip(s.tolist(), t.tolist(), strict=True):
            q = softmax([10 * each for each in own])
            p = softmax([10 * each for each in others])
            divergence += sum(b * math.log(b / a) for a, b in zip(q, p, strict=True)) / len(s)
            entropy -= sum(b * math.log(b) for b in p) / len(s)
    assert listnet.item() == pytest.approx(divergence + entropy, rel=1e-10)


@pytest.mark.parametrize("loss", [ScoreRegressionLoss(), ReverseDivergenceLoss()], ids=str)
def test_agreement_costs_nothing_and_the_teacher_gets_no_gradient(
    loss: nn.Module, pair: tuple[Tensor, Tensor]
) -> None:
    student, teacher = pair
    loss(student, teacher).backward()
    assert teacher.grad is None
    assert loss(student, student).item() == pytest.approx(0, abs=1e-12)
    assert loss(student, teacher).item() > 0.01


def test_impossible_options_and_input_are_refused() -> None:
    with pytest.raises(ConfigError, match="positive, got 0"):
        ScoreRegressionLoss(threshold=0)
    with pytest.raises(ConfigError, match="positive, got -1"):
        ReverseDivergenceLoss(temperature=-1)
    for loss in (ScoreRegressionLoss(), ReverseDivergenceLoss()):
        with pytest.raises(ShapeError, match=r"\(2, 3\), got \(3, 2\)"):
            loss(torch.zeros(2, 3), torch.zeros(3, 2))
