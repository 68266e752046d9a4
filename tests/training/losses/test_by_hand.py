"""Values of losses that were worked by hand."""

from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor

from aladin_training.losses.boosting import BoostingLoss
from aladin_training.losses.dark_rank import DarkRankLoss
from aladin_training.losses.gradient import GradientObjective
from aladin_training.losses.infonce import InfoNCELoss
from aladin_training.losses.intra_modal import IntraModalConstraintLoss
from aladin_training.losses.listnet import ListNetLoss
from aladin_training.losses.negatives import negative_mask
from aladin_training.losses.offline_quintuplet import OfflineQuintupletLoss, OfflineScores
from aladin_training.losses.polynomial import PolynomialLoss
from aladin_training.losses.projection_matching import ProjectionMatchingLoss
from aladin_training.losses.triplet import TripletMarginLoss

NEGATIVES = negative_mask(torch.arange(2))


def matrix(*rows: list[float]) -> Tensor:
    return torch.tensor(rows, dtype=torch.float64)


# Of two pairs, whose scores are the diagonal.
@pytest.mark.parametrize(
    ("loss", "scores", "expected"),
    [
        # image 0: .2 + .4 - .5 = .1; image 1, text 0 and text 1 are below 0
        (TripletMarginLoss(0.2), [[0.5, 0.4], [0.1, 0.7]], 0.1),
        # Gaps to the one negative: images 1 and 1, texts 2 and 0; each costs log(1 + e^-gap).
        (
            InfoNCELoss(temperature=1.0),
            [[2.0, 1.0], [0.0, 1.0]],
            sum(math.log1p(math.exp(-gap)) for gap in (1.0, 1.0, 2.0, 0.0)) / 4,
        ),
        # Image 0: p .6 (.5 - .42 + .072), q .5 (.03 - .2 + .225). Text 0: .1 + .2 < .6.
        # Image 1 and text 1: nothing left to gain from a score of 1.
        (PolynomialLoss(), [[0.6, 0.5], [0.1, 1.0]], (0.152 + 0.055) / 2),
        # Only image 0 has a negative within the margin: 1 + 2 * .4 ^ 3.
        (
            PolynomialLoss(margin=0.2, positive=[1.0], negative=[0.0, 0.0, 0.0, 2.0]),
            [[0.5, 0.4], [0.0, 0.9]],
            1.128 / 2,
        ),
        # Each query: 1/2 log(1/2 / 1) + 1/2 log(1/2 / e) with e = 1e-8; two directions.
        (
            ProjectionMatchingLoss(),
            [[0.0, 0.0], [0.0, 0.0]],
            math.log(0.5) + math.log(0.5 / 1e-8),
        ),
    ],
    ids=lambda each: type(each).__name__,
)
def test_losses_of_a_matrix(
    loss: torch.nn.Module, scores: list[list[float]], expected: float
) -> None:
    assert loss(matrix(*scores), NEGATIVES).item() == pytest.approx(expected, rel=1e-6)


# Query 0 of each direction: P = (3/4, 1/4), Q = softmax(6, 0). Query 1: log 2.
QUERY_0 = 0.75 * math.log1p(math.exp(-6)) + 0.25 * (6 + math.log1p(math.exp(-6)))
THREE_TO_ONE = [[math.log(3.0), 0.0], [0.0, 0.0]]


@pytest.mark.parametrize(
    ("loss", "student", "teacher", "expected"),
    [
        # A student without an opinion costs log 2 a query, whatever the teacher thinks.
        (ListNetLoss(), [[0.0, 0.0], [0.0, 0.0]], THREE_TO_ONE, 2 * math.log(2)),
        (ListNetLoss(), [[1.0, 0.0], [0.0, 0.0]], THREE_TO_ONE, QUERY_0 + math.log(2)),
        # Places 2 and 3: texts 1 and 2, x = -1 and 0. Each text has one image: nothing to rank.
        (
            DarkRankLoss(alpha=1.0, beta=1.0),
            [[-1.0, 0.0, 1.0]],
            [[0.9, 0.5, 0.1]],
            1 + math.log(math.exp(-1) + 1),
        ),
        # The official distance puts the least similar first: 2, 1, 0, of which 2 is left out.
        (
            DarkRankLoss(alpha=1.0, beta=1.0, distance="score"),
            [[1.0, 0.5, 7.0]],
            [[0.9, 0.5, 0.1]],
            0.5 + math.log(math.exp(-0.5) + math.exp(-1)),
        ),
    ],
    ids=lambda each: type(each).__name__,
)
def test_losses_of_a_student_and_a_teacher(
    loss: torch.nn.Module,
    student: list[list[float]],
    teacher: list[list[float]],
    expected: float,
) -> None:
    assert loss(matrix(*student), matrix(*teacher)).item() == pytest.approx(expected)


def test_boosting() -> None:
    target, anchor = matrix([0.6, 0.3], [0.2, 0.5]), matrix([0.5, 0.4], [0.0, 0.5])
    # S - A is .1 and 0 at the pairs, -.1 and .2 at the negatives.
    # relative: images .2 - .1 - .1 and .2 + .2 - 0, texts .2 + .2 - .1 and .2 - .1 - 0
    assert BoostingLoss()(target, anchor, NEGATIVES).item() == pytest.approx(0.4 + 0.3 + 0.1)
    # absolute: pairs .1 - .1 and .1 - 0, negatives .1 - .1 and .1 + .2, each once a direction
    absolute = BoostingLoss("absolute")(target, anchor, NEGATIVES)
    assert absolute.item() == pytest.approx(2 * (0.1 + 0.3))


@pytest.mark.parametrize(
    ("form", "expected"),
    [
        # online: images .2 - .6 + .5 and .2 - .4 + .1 < 0, texts .2 - .6 + .1 < 0 and .2 - .4 + .5
        # offline: images .7 - .6 and .3 - .4 < 0, texts .2 - .6 < 0 and .4 - .4
        ("triplet", 0.1 + 0.3 + 0.1),
        # cross: images .8 - .6 and 0 - .4 < 0, texts .5 - .6 < 0 and .7 - .4
        ("quintuplet", 0.5 + 0.2 + 0.3),
        # weights: image 0 has 1.5 - (.7 - .5)/.3 = 5/6, text 1 has 1.5 - (.4 - .5)/.3 = 11/6
        ("adaptive", 5 / 6 * 0.1 + 11 / 6 * 0.3 + 0.1 + 0.5),
    ],
)
def test_offline_quintuplets(form: str, expected: float) -> None:
    offline = OfflineScores(*matrix([0.7, 0.3], [0.2, 0.4], [0.8, 0.0], [0.5, 0.7]))
    found = OfflineQuintupletLoss(form)(matrix([0.6, 0.5], [0.1, 0.4]), offline, NEGATIVES)
    assert found.item() == pytest.approx(expected)


def test_goal_with_and_without_its_gate() -> None:
    scores = matrix([0.5, 0.4], [-0.1, 0.8]).requires_grad_()
    # p, q: image 0 (.5, .4), image 1 (.8, -.1), text 0 (.5, -.1), text 1 (.8, .4).
    # The gate leaves image 0 alone: .2 + .4 - .5 > 0.
    loss = GradientObjective("con", "lin")(scores, NEGATIVES)
    assert loss.item() == pytest.approx(-0.1 - 0.9 - 0.6 - 0.4)
    (gated,) = torch.autograd.grad(loss, scores)
    torch.testing.assert_close(gated, matrix([-0.5, 0.4], [0.0, 0.0]))
    # Without it every query pulls by 1 - p and pushes by q, and a negative q < 0 is pulled.
    (free,) = torch.autograd.grad(
        GradientObjective("con", "lin", gate=False)(scores, NEGATIVES), scores
    )
    torch.testing.assert_close(free, matrix([-0.5 - 0.5, 0.4 + 0.4], [-0.1 - 0.1, -0.2 - 0.2]))


ROOT = math.sqrt(3) / 2
NEAR = 2 * (1 - ROOT)


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        # Official cos, 1/2 < s < .95: the pair at 30 degrees, twice, divided by 3 rows.
        ({"distance": "cos", "upper": 0.51}, 2 * ROOT / 3),
        # Paper: 1 - s is 1/2, 1 and .134; of them .134 lies within (.05, .5), and .5 with .6.
        ({"distance": "cos", "mode": "paper", "upper": 0.49}, 2 * (1 - ROOT)),
        ({"distance": "cos", "mode": "paper", "upper": 0.6}, 2 * (1.5 - ROOT)),
        # msd is 2 (1 - s): 1, 2 and .268. Row 0 over its norm is (0, 1, 2) / sqrt(5); ranks
        # round(.15) = 0 and round(2.4) = 2 leave the band (0, .894). Rows 1 and 2 have the norms
        # sqrt(1 + .072) and sqrt(4 + .072): in the band are .268 / 1.035 and .268 / 2.018.
        (
            {"distance": "msd", "upper": 0.8},
            (1 / math.sqrt(5) + NEAR / math.hypot(1, NEAR) + NEAR / math.hypot(2, NEAR)) / 3,
        ),
    ],
)
def test_the_constraint_of_three_angles(options: dict[str, object], expected: float) -> None:
    """0, 60 and 90 degrees: cosines 1/2, 0 and sqrt(3)/2."""
    angles = torch.tensor([0.0, math.pi / 3, math.pi / 2], dtype=torch.float64)
    rows = torch.stack([angles.cos(), angles.sin()], dim=1)
    assert IntraModalConstraintLoss(**options)(rows).item() == pytest.approx(expected)


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
    rows = matrix([1.0, 0.0], [0.8, 0.6], [0.6, 0.8])
    given = (rows, negative_mask(torch.tensor([0, 0, 1]))) if masked else (rows,)
    assert IntraModalConstraintLoss(**options)(*given).item() == pytest.approx(expected)
