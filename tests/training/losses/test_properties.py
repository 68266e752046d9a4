"""Properties of single losses that their papers name or their users rely on."""

from __future__ import annotations

import math
from itertools import product

import pytest
import torch
from torch import Tensor
from torch.nn import functional as F

from aladin_network.errors import ShapeError
from aladin_training.losses.infonce import InfoNCELoss
from aladin_training.losses.intra_modal import IntraModalConstraintLoss
from aladin_training.losses.negatives import by_pairs, check_pairs, negative_mask
from aladin_training.losses.offline_quintuplet import OfflineQuintupletLoss, OfflineScores
from aladin_training.losses.polynomial import PolynomialLoss
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


def test_given_polynomials_are_those_of_each_positive_and_its_hardest_negative() -> None:
    """Only image 0 has a negative within the margin: 1 + 2 * .4 ^ 3."""
    loss = PolynomialLoss(margin=0.2, positive=[1.0], negative=[0.0, 0.0, 0.0, 2.0])
    scores = torch.tensor([[0.5, 0.4], [0.0, 0.9]], dtype=torch.float64)
    found = loss(scores, negative_mask(torch.arange(2)))
    assert found.item() == pytest.approx(1.128 / 2)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_the_papers_cosine_divides_by_both_norms_and_is_0_of_zeros(dtype: torch.dtype) -> None:
    # (3, 4) and (2, 0): the cosine is 6 / (5 * 2) = .6, the distance .4, within (.05, .5). The
    # inner product 6 would give the distance -5, outside of the band.
    # -d cos / dv = cos v / ||v||^2 - w / (||v|| ||w||), twice:
    # v = (3, 4): .6 (3, 4) / 25 - (2, 0) / 10 = (.072 - .2, .096)
    # w = (2, 0): .6 (2, 0) / 4 - (3, 4) / 10 = (.3 - .3, -.4)
    rows = torch.tensor([[0.0, 0.0], [3.0, 4.0], [2.0, 0.0]], dtype=dtype, requires_grad=True)
    near = IntraModalConstraintLoss("cos", mode="paper")(rows)
    assert near.item() == pytest.approx(2 * 0.4)  # both orders of the pair
    # The distance is 1 between the zero row and each other one.
    loss = IntraModalConstraintLoss("cos", upper=1.5, mode="paper")(rows)
    assert loss.item() == pytest.approx(2 * (1 + 1 + 0.4))
    expected = torch.tensor([[0.0, 0.0], [-0.256, 0.192], [0.0, -0.8]], dtype=dtype)
    for each in (near, loss):
        torch.testing.assert_close(torch.autograd.grad(each, rows)[0], expected)
    # The official code's inner product of these rows, 6, is outside of (.5, .95).
    assert IntraModalConstraintLoss("cos")(rows).item() == 0.0


PAPER = {"distance": "l1", "mode": "paper", "lower": 0.1, "upper": 1.5}


@pytest.mark.parametrize(
    ("options", "masked", "expected"),
    [
        (PAPER, False, 2 * (0.8 + 1.2 + 0.4)),
        (PAPER, True, 2 * (1.2 + 0.4)),
        # Official cos, .5 < s < .95: without the mask .8 and .6 twice each, with it .6 alone.
        ({"distance": "cos"}, False, 2 * (0.8 + 0.6) / 3),
        ({"distance": "cos"}, True, 2 * 0.6 / 3),
        # Official l1: with d01 = 0 the rows are (0, 0, 1.2) / 1.2, (0, 0, .4) / .4 and
        # (1.2, .4, 0) / sqrt(1.6). Rank round(.1 * 3) = 0 of row 0 is 0, rank round(.6 * 3) = 2
        # is 1: both entries of the third row lie within (0, 1).
        ({"distance": "l1", "lower": 0.1, "upper": 0.6}, True, 1.6 / math.sqrt(1.6) / 3),
    ],
)
def test_the_constraint_leaves_captions_of_one_photo_alone(
    options: dict[str, object], masked: bool, expected: float
) -> None:
    """Rows 0 and 1 are captions of one photo, row 2 of another: (1, 0), (.8, .6) and (.6, .8).

    l1: d01 = .8, d02 = 1.2, d12 = .4. Cosines: s01 = .8, s02 = .6, s12 = .96.
    """
    rows = torch.tensor([[1.0, 0.0], [0.8, 0.6], [0.6, 0.8]], dtype=torch.float64)
    given = (rows, negative_mask(torch.tensor([0, 0, 1]))) if masked else (rows,)
    assert IntraModalConstraintLoss(**options)(*given).item() == pytest.approx(expected)


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
