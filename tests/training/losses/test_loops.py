"""Losses beside the five papers' equations against loops, value and gradient."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from aladin_training.losses.dark_rank import DarkRankLoss
from aladin_training.losses.infonce import InfoNCELoss
from aladin_training.losses.listnet import ListNetLoss
from aladin_training.losses.polynomial import PolynomialLoss
from aladin_training.losses.projection_matching import ProjectionMatchingLoss
from aladin_training.losses.reverse_divergence import ReverseDivergenceLoss
from aladin_training.losses.score_regression import ScoreRegressionLoss
from tests.training.losses import loops

Pairs = tuple[Tensor, Tensor]


def agree(found: Tensor, expected: Tensor, scores: Tensor) -> None:
    assert found.item() == pytest.approx(expected.item(), rel=1e-10, abs=1e-12)
    ours, theirs = (torch.autograd.grad(each, scores)[0] for each in (found, expected))
    torch.testing.assert_close(ours, theirs)


@pytest.mark.parametrize("temperature", [0.07, 1.0, 3.0])
def test_infonce(pairs: Pairs, temperature: float) -> None:
    scores, negatives = pairs
    diagonal = [(n, n) for n in range(len(scores))]
    expected = loops.infonce(scores, negatives, diagonal, temperature)
    agree(InfoNCELoss(temperature)(scores, negatives), expected, scores)
    # Two photos have two captions: the pairs are listed.
    owners = torch.tensor([0, 0, 1, 1])
    several = scores[:2, :4].detach().clone().requires_grad_()
    listed = torch.stack([owners, torch.arange(4)], dim=1)
    others = torch.arange(2).unsqueeze(1) != owners
    found = InfoNCELoss(temperature)(several, others, listed)
    cells = [(int(i), int(t)) for i, t in listed]
    agree(found, loops.infonce(several, others, cells, temperature), several)


@pytest.mark.parametrize("margin", [0.2, 0.0, 1.0])
def test_polynomial(pairs: Pairs, margin: float) -> None:
    agree(PolynomialLoss(margin)(*pairs), loops.polynomial(*pairs, margin), pairs[0])


@pytest.mark.parametrize(("temperature", "epsilon"), [(10.0, 1e-8), (3.0, 1e-4)])
def test_projection_matching(pairs: Pairs, temperature: float, epsilon: float) -> None:
    expected = loops.projection_matching(*pairs, temperature, epsilon)
    agree(ProjectionMatchingLoss(temperature, epsilon)(*pairs), expected, pairs[0])


@pytest.mark.parametrize("distance", ["cosine", "score"])
@pytest.mark.parametrize(("alpha", "beta", "length"), [(3.0, 3.0, 4), (1.0, 1.0, 2)])
def test_dark_rank(
    pairs: Pairs, teacher: Tensor, alpha: float, beta: float, length: int, distance: str
) -> None:
    found = DarkRankLoss(alpha, beta, length, distance)(pairs[0], teacher)  # type: ignore[arg-type]
    expected = loops.dark_rank(pairs[0], teacher, alpha, beta, length, distance == "score")
    agree(found, expected, pairs[0])


@pytest.mark.parametrize("threshold", [1.0, 0.3])
def test_score_regression(pairs: Pairs, teacher: Tensor, threshold: float) -> None:
    expected = loops.regression(pairs[0], teacher, threshold)
    agree(ScoreRegressionLoss(threshold)(pairs[0], teacher), expected, pairs[0])


@pytest.mark.parametrize("temperature", [10.0, 2.0])
def test_divergences(pairs: Pairs, teacher: Tensor, temperature: float) -> None:
    """DML and DINO are listnet with both factors alike, but for the teacher's entropy."""
    scores = pairs[0]
    backwards = loops.divergence(scores, teacher, temperature, reverse=True)
    agree(ReverseDivergenceLoss(temperature)(scores, teacher), backwards, scores)
    forwards = loops.divergence(scores, teacher, temperature, reverse=False)
    listnet = ListNetLoss(temperature=temperature, teacher_scale=temperature)(scores, teacher)
    agree(listnet, forwards + loops.entropy(teacher.detach(), temperature), scores)
