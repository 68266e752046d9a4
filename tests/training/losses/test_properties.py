"""Properties of single losses that their papers name or their users rely on."""

from __future__ import annotations

import math
from itertools import product

import pytest
import torch
from torch import Tensor
from torch.nn import functional as F

from aladin_network.errors import ShapeError
from aladin_training.losses.boosting import BoostingLoss
from aladin_training.losses.dark_rank import DarkRankLoss
from aladin_training.losses.gradient import GradientObjective
from aladin_training.losses.infonce import InfoNCELoss
from aladin_training.losses.intra_modal import IntraModalConstraintLoss
from aladin_training.losses.listnet import ListNetLoss
from aladin_training.losses.negatives import by_pairs, check_pairs, negative_mask
from aladin_training.losses.offline_quintuplet import OfflineQuintupletLoss, OfflineScores
from aladin_training.losses.reverse_divergence import ReverseDivergenceLoss
from aladin_training.losses.score_regression import ScoreRegressionLoss
from aladin_training.losses.triplet import TripletMarginLoss

Pairs = tuple[Tensor, Tensor]


def test_only_pairs_of_different_images_are_negatives() -> None:
    assert negative_mask(torch.tensor([7, 3, 7])).tolist() == [
        [False, True, False],
        [True, False, True],
        [False, True, False],
    ]
    several = negative_mask(torch.tensor([4, 9]), torch.tensor([4, 4, 9]))
    assert several.tolist() == [[False, False, True], [True, True, False]]


def test_pairs_see_their_image_s_row_and_their_text_s_column() -> None:
    scores = torch.tensor([[1.0, 2.0, 3.0], [4.0, 5.0, 6.0]])
    seen = by_pairs(scores, torch.tensor([[0, 1], [1, 2], [0, 0]]))
    assert seen.own.tolist() == [2, 6, 1]
    assert seen.of_image.tolist() == [[1, 2, 3], [4, 5, 6], [1, 2, 3]]
    assert seen.of_text.tolist() == [[2, 5], [3, 6], [1, 4]]
    square, diagonal = torch.arange(9.0).view(3, 3), torch.arange(3).repeat(2, 1).T
    for ours, listed in zip(by_pairs(square, None), by_pairs(square, diagonal), strict=True):
        assert torch.equal(ours, listed)
    with pytest.raises(ShapeError, match=r"\(batch, batch\), got \(2, 3\)"):
        check_pairs(torch.zeros(2, 3), torch.zeros(2, 3, dtype=torch.bool))


def test_exact_ties_keep_the_triplets_gradient_balanced() -> None:
    scores = torch.full((3, 3), 0.3, requires_grad=True)
    loss = TripletMarginLoss(0.2)(scores, negative_mask(torch.arange(3)))
    (found,) = torch.autograd.grad(loss, scores)
    assert loss.item() == pytest.approx(6 * 0.2)
    assert found.diagonal().tolist() == [-2.0, -2.0, -2.0]
    assert found.sum().item() == pytest.approx(0.0)


@pytest.mark.parametrize("form", ["relative", "absolute"])
def test_a_target_equal_to_its_anchor_pays_the_margin_once_a_query(pairs: Pairs, form: str) -> None:
    scores, negatives = pairs
    loss = BoostingLoss(form, margin=0.3)(scores, scores, negatives)
    assert loss.item() == pytest.approx(0.3 * 2 * len(scores))


def soft_margins(positive: float, negative: float) -> tuple[float, float, float]:
    """Read the three soft margins off a batch whose target equals its anchor.

    Only image 0 and text 1 have a negative, and it is the same cell.
    """
    scores = torch.full((2, 2), positive, dtype=torch.float64)
    scores[0, 1] = negative
    negatives = torch.tensor([[False, True], [False, False]])
    relative, of_positive, of_negative = (
        BoostingLoss(form, soft=True, margin=0.4, alpha=alpha)(scores, scores, negatives).item() / 2
        for form, alpha in (("relative", 0.5), ("absolute", 1.0), ("absolute", 0.0))
    )
    return relative, of_positive, of_negative


def test_soft_margins_shrink_where_little_is_left_to_gain() -> None:
    assert soft_margins(1.0, -1.0) == pytest.approx((0.0, 0.0, 0.0), abs=1e-15)
    step = 1e-4  # Slope -1 at the ends: never more than what is still attainable.
    assert soft_margins(1 - step, -1 + step) == pytest.approx((2 * step, step, step), rel=1e-4)
    assert soft_margins(-1.0, 1.0) == pytest.approx((0.4, 0.4, 0.4), rel=1e-3)
    for score in (-0.9, -0.3, 0.0, 0.4, 0.95):
        relative, of_positive, of_negative = soft_margins(score, score)
        assert relative == pytest.approx(0.4 * math.tanh(2 / 0.4))
        assert of_positive <= min(0.4, 1 - score)
        assert of_negative <= min(0.4, 1 + score)


def test_gap_and_cost_may_pick_different_negatives() -> None:
    anchor = torch.tensor([[0.5, -1.0, 0.5]] * 3, dtype=torch.float64)
    target = anchor.clone()
    target[0, 1] += 0.05
    negatives = torch.zeros(3, 3, dtype=torch.bool)
    negatives[0, 1:] = True
    # For image 0 text 1 has the larger gap, .05 against 0. Its soft margin is 0, that of text 2
    # is whole, so text 2 has the larger bracket. Texts 1 and 2 have no choice.
    by_gap, by_cost = (
        BoostingLoss("absolute", soft=True, selection=selection)(target, anchor, negatives)
        for selection in ("gap", "cost")
    )
    assert (by_cost - by_gap).item() == pytest.approx(0.1 * math.tanh(15) - 0.05)


def test_goals_con_con_is_the_gradient_of_the_triplet_loss(pairs: Pairs) -> None:
    negatives = pairs[1]
    images, texts = (
        torch.randn(len(negatives), 6, dtype=torch.float64, requires_grad=True) for _ in range(2)
    )

    def gradients(loss: GradientObjective | TripletMarginLoss) -> tuple[Tensor, ...]:
        cosines = F.normalize(images, dim=1) @ F.normalize(texts, dim=1).T
        return torch.autograd.grad(loss(cosines, negatives), (images, texts))

    torch.testing.assert_close(gradients(GradientObjective()), gradients(TripletMarginLoss()))
    exact = torch.tensor([[0.5, 0.25], [0.25, 0.5]], requires_grad=True)
    GradientObjective(margin=0.25)(exact, negative_mask(torch.arange(2))).backward()
    assert torch.equal(exact.grad, torch.zeros(2, 2))  # satisfied exactly


def test_integrable_combinations_of_goal_are_the_gradients_of_their_losses(pairs: Pairs) -> None:
    scores, negatives = pairs
    hard = scores.masked_fill(~negatives, -9.0)  # every query has a negative

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
        value = sum(loss(scores.diagonal(), hard.amax(way)).sum() for way in (0, 1))
        (expected,) = torch.autograd.grad(value, scores, retain_graph=True)
        (found,) = torch.autograd.grad(objective(scores, negatives), scores)
        torch.testing.assert_close(found, expected)


@pytest.mark.parametrize(("p", "q", "offset"), [(0.4, 0.8, 0.0), (0.5, 0.5, 0.5)])
def test_goals_circle_of_half_weight(p: float, q: float, offset: float) -> None:
    """(1 - p)^2 + q^2 is 1, and 1/2."""
    scores = torch.tensor([[p, q], [q, p]], dtype=torch.float64, requires_grad=True)
    objective = GradientObjective("cir", circle_offset=offset)
    objective(scores, negative_mask(torch.arange(2))).backward()
    assert scores.grad[0, 1].item() / 2 == pytest.approx(0.5)


def test_infonce_without_repeated_images_is_the_cross_entropy_of_clip(pairs: Pairs) -> None:
    scores, target = pairs[0], torch.arange(len(pairs[0]))
    expected = (F.cross_entropy(scores / 0.1, target) + F.cross_entropy(scores.T / 0.1, target)) / 2
    torch.testing.assert_close(InfoNCELoss(0.1)(scores, negative_mask(target)), expected)


def test_a_temperature_is_trained_if_it_is_learnable(pairs: Pairs) -> None:
    assert list(InfoNCELoss(0.07).parameters()) == []
    loss = InfoNCELoss(0.5, learnable=True)
    (log_temperature,) = loss.parameters()
    torch.testing.assert_close(loss(*pairs), InfoNCELoss(0.5)(*pairs))
    loss(*pairs).backward()
    step = 1e-4
    above, below = (InfoNCELoss(0.5 * math.exp(each))(*pairs).item() for each in (step, -step))
    assert log_temperature.grad is not None
    assert log_temperature.grad.item() == pytest.approx((above - below) / (2 * step), rel=1e-4)
    with torch.no_grad():
        log_temperature += math.log(2)
    assert loss.temperature == pytest.approx(1.0)


def test_agreement_with_the_teacher_costs_least(pairs: Pairs, teacher: Tensor) -> None:
    student = pairs[0]
    for loss in (ScoreRegressionLoss(), ReverseDivergenceLoss()):
        assert loss(student, student).item() == pytest.approx(0, abs=1e-12)
        assert loss(student, teacher).item() > 0.01
    listnet = ListNetLoss(6.0)
    (found,) = torch.autograd.grad(listnet(student, 6.0 * student), student)
    torch.testing.assert_close(found, torch.zeros_like(student))
    torch.testing.assert_close(listnet(student, teacher + 17.0), listnet(student, teacher))
    sharp, order = DarkRankLoss(alpha=20.0), torch.tensor([[0.9, 0.6, 0.1, -0.5]])
    assert sharp(order, order).item() < 0.1 < sharp(order.flip(1), order).item()


@pytest.mark.parametrize("form", ["quintuplet", "adaptive"])
def test_a_cross_score_of_minus_infinity_drops_that_term(
    pairs: Pairs, teacher: Tensor, form: str
) -> None:
    scores, negatives = pairs
    dropped = torch.arange(len(scores)) % 2 == 0
    own = [teacher[row].detach().requires_grad_() for row in range(4)]

    def with_cross_of(value: float) -> tuple[Tensor, tuple[Tensor, ...]]:
        cross = [each.masked_fill(dropped, value) for each in own[2:]]
        offline = OfflineScores(own[0], own[1], *cross)
        result = OfflineQuintupletLoss(form)(scores, offline, negatives)
        return result, torch.autograd.grad(result, (scores, *own))

    # -5 is below every positive: its hinges are 0.
    torch.testing.assert_close(with_cross_of(float("-inf")), with_cross_of(-5.0))


@pytest.mark.parametrize("form", ["triplet", "quintuplet", "adaptive", "online_quintuplet"])
def test_a_batch_of_one_image_has_offline_terms_alone(form: str) -> None:
    negatives = negative_mask(torch.zeros(4, dtype=torch.long))
    easy, hard = torch.full((4,), 0.2), torch.full((4,), 0.6)
    offline = OfflineScores(hard, hard, easy, easy)
    loss = OfflineQuintupletLoss(form)(torch.full((4, 4), 0.5), offline, negatives)
    assert loss.item() == pytest.approx(2 * 4 * 0.1)


CONSTRAINTS = list(product(["l1", "l2", "msd", "cos"], ["official", "paper"]))


@pytest.mark.parametrize(("distance", "mode"), CONSTRAINTS)
def test_equal_embeddings_have_a_finite_gradient(distance: str, mode: str) -> None:
    """Unit vectors around two centres, row 2 equal to row 1 and row 3 very near to it."""
    generator = torch.Generator().manual_seed(300)
    centres = torch.randn(2, 5, generator=generator, dtype=torch.float64)
    noise = torch.randn(8, 5, generator=generator, dtype=torch.float64)
    rows = centres[torch.arange(8) % 2] + 0.7 * noise
    rows[2], rows[3] = rows[1], rows[1] + 0.01
    rows = F.normalize(rows, dim=1).requires_grad_()
    upper = 0.5 if distance == "cos" else 1.0
    constraint = IntraModalConstraintLoss(distance, lower=0.0, upper=upper, mode=mode)
    loss = constraint(rows)
    (found,) = torch.autograd.grad(loss, rows)
    assert loss.item() > 0
    assert found.isfinite().all()
    torch.testing.assert_close(found[1], found[2])  # they are apart from all other rows alike
    # Where all are captions of one photo, or there is a single embedding, nothing moves.
    for alone in (constraint(rows, negative_mask(torch.zeros(8).long())), constraint(rows[:1])):
        assert alone.item() == 0.0
        assert not torch.autograd.grad(alone, rows)[0].any()


@pytest.mark.parametrize(("batch", "rank"), [(5, 2), (7, 4), (17, 8), (19, 10)])
def test_half_a_rank_is_rounded_to_even(batch: int, rank: int) -> None:
    # On a line row 0's distances are 0 .. B-1 times a step: the band ends below `rank`.
    line = torch.arange(batch, dtype=torch.float64).unsqueeze(1)
    loss = IntraModalConstraintLoss("l1", lower=0.0, upper=0.5)(line).item()
    hi = rank / math.sqrt(sum(k * k for k in range(batch)))
    expected = 0.0
    for n in range(batch):
        norm = math.sqrt(sum((n - m) ** 2 for m in range(batch)))
        expected += sum(d for m in range(batch) if 0 < (d := abs(n - m) / norm) < hi - 1e-12)
    assert loss == pytest.approx(expected / batch)


@pytest.mark.parametrize(
    ("distance", "before", "after"),
    [("cos", 0.704, 0.639), ("l1", 0.084, 0.099), ("l2", 0.093, 0.115), ("msd", 0.094, 0.116)],
)
def test_one_step_moves_the_pairs_of_the_band_as_far_as_the_papers_page_says(
    distance: str, before: float, after: float
) -> None:
    """The official cos pushes them apart, the distances pull them together."""
    generator = torch.Generator().manual_seed(0)

    def directions(count: int) -> Tensor:
        return F.normalize(torch.randn(count, 256, generator=generator, dtype=torch.float64), dim=1)

    centres = directions(16).repeat_interleave(8, dim=0)
    rows = F.normalize(centres + 0.65 * directions(128), dim=1).requires_grad_()
    (found,) = torch.autograd.grad(IntraModalConstraintLoss(distance)(rows), rows)
    rows = rows.detach()
    cosines = rows @ rows.T
    if distance == "cos":
        band = (cosines > 0.5) & (cosines < 0.95)
    else:
        distances = torch.cdist(rows, rows, p=1 if distance == "l1" else 2)
        distances = F.normalize(distances.square() if distance == "msd" else distances, dim=1)
        first = distances[0].sort().values
        band = (distances > first[6]) & (distances < first[64])
    band &= ~torch.eye(128, dtype=torch.bool)
    stepped = F.normalize(rows - 0.1 * found / found.norm(dim=1).max(), dim=1)
    assert cosines[band].mean().item() == pytest.approx(before, abs=0.002)
    assert (stepped @ stepped.T)[band].mean().item() == pytest.approx(after, abs=0.002)
