"""PartialRankingLoss against loops, a case worked by hand and its invariances."""

from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor

from aladin_network.errors import ConfigError, ShapeError
from aladin_training.losses.infonce import InfoNCELoss
from aladin_training.losses.negatives import negative_mask
from aladin_training.losses.partial_ranking import PartialRankingLoss


def reference(student: Tensor, teacher: Tensor, temperature: float, depth: int) -> float:
    total = 0.0
    for s, t in ((student, teacher), (student.T, teacher.T)):
        costs: list[float] = []
        for scores, ranked_by in zip(s.tolist(), t.tolist(), strict=True):
            left = sorted(range(len(scores)), key=lambda place: -ranked_by[place])
            chosen: list[float] = []
            for _ in range(min(depth, len(scores))):
                exponentials = [math.exp(temperature * scores[place]) for place in left]
                chosen.append(-math.log(exponentials[0] / sum(exponentials)))
                left = left[1:]
            costs.append(sum(chosen) / len(chosen))
        total += sum(costs) / len(costs)
    return total


@pytest.fixture
def pair() -> tuple[Tensor, Tensor]:
    """Student cosines and teacher scores of 4 images and 6 texts."""
    generator = torch.Generator().manual_seed(12)
    student = torch.rand(4, 6, generator=generator, dtype=torch.float64) * 2 - 1
    teacher = torch.randn(4, 6, generator=generator, dtype=torch.float64) * 3
    return student.requires_grad_(), teacher.requires_grad_()


@pytest.mark.parametrize(("temperature", "depth"), [(20.0, 1), (5.0, 3), (1.0, 4), (6.0, 100)])
def test_equals_the_loops(pair: tuple[Tensor, Tensor], temperature: float, depth: int) -> None:
    loss = PartialRankingLoss(temperature, depth)(*pair)
    assert loss.item() == pytest.approx(reference(*pair, temperature, depth), rel=1e-12)


def test_two_by_two_worked_by_hand() -> None:
    student = torch.tensor([[1.0, 0.0], [0.0, 0.0]], dtype=torch.float64)
    teacher = torch.tensor([[0.1, 0.2], [0.3, 0.4]], dtype=torch.float64)
    # Row 0: the teacher prefers the second, the student the first: log(1 + e). Row 1: log 2.
    # Column 0: the teacher prefers the second, the student the first: log(1 + e). Column 1: log 2.
    expected = math.log(1 + math.e) + math.log(2)
    loss = PartialRankingLoss(temperature=1.0, depth=1)(student, teacher)
    assert loss.item() == pytest.approx(expected)
    # The last place is taken by what is left, at no cost: the mean over two places is half.
    loss = PartialRankingLoss(temperature=1.0, depth=2)(student, teacher)
    assert loss.item() == pytest.approx(expected / 2)


def test_only_the_teacher_s_order_counts(pair: tuple[Tensor, Tensor]) -> None:
    student, teacher = pair
    loss = PartialRankingLoss(5.0, 3)
    # Differences of a millionth teach as much as large ones.
    close = (teacher / 1000).detach() ** 3 * 1e-6
    torch.testing.assert_close(loss(student, close), loss(student, teacher))
    assert not torch.isclose(loss(student, -teacher), loss(student, teacher))


def test_with_a_teacher_that_knows_only_the_pairs_it_is_infonce(
    pair: tuple[Tensor, Tensor],
) -> None:
    student = pair[0][:, :4]
    loss = PartialRankingLoss(temperature=10.0, depth=1)(student, torch.eye(4))
    infonce = InfoNCELoss(temperature=0.1)(student, negative_mask(torch.arange(4)))
    torch.testing.assert_close(loss, 2 * infonce)


def test_order_of_images_and_texts_does_not_matter(pair: tuple[Tensor, Tensor]) -> None:
    student, teacher = pair
    rows, columns = torch.tensor([2, 0, 3, 1]), torch.tensor([5, 1, 0, 4, 2, 3])
    loss = PartialRankingLoss()
    shuffled = loss(student[rows][:, columns], teacher[rows][:, columns])
    torch.testing.assert_close(shuffled, loss(student, teacher))


def test_gradient_agrees_with_finite_differences(pair: tuple[Tensor, Tensor]) -> None:
    student, teacher = pair
    loss = PartialRankingLoss(6.0, 3)
    assert torch.autograd.gradcheck(lambda s: loss(s, teacher), (student,))
    loss(student, teacher).backward()
    assert teacher.grad is None


def test_a_student_of_the_same_order_pays_less_the_surer_it_is(pair: tuple[Tensor, Tensor]) -> None:
    student, _ = pair
    costs = [PartialRankingLoss(t, 3)(student, student).item() for t in (1.0, 10.0, 1000.0)]
    assert costs[0] > costs[1] > costs[2]
    assert costs[2] < 0.05


def test_one_pair_costs_nothing() -> None:
    student = torch.tensor([[0.3]], requires_grad=True)
    loss = PartialRankingLoss()(student, torch.tensor([[5.0]]))
    loss.backward()
    assert loss.item() == 0.0
    assert student.grad is not None
    assert student.grad.item() == 0.0


def test_impossible_input_is_refused() -> None:
    with pytest.raises(ShapeError, match=r"\(2, 3\), got \(3, 2\)"):
        PartialRankingLoss()(torch.zeros(2, 3), torch.zeros(3, 2))
    with pytest.raises(ConfigError, match="got -6 and 16"):
        PartialRankingLoss(temperature=-6)
    with pytest.raises(ConfigError, match=r"got 20\.0 and 0"):
        PartialRankingLoss(depth=0)
