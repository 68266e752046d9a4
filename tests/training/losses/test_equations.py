"""Every loss and option of the five papers against the equations, value and gradient to 1e-6."""

from __future__ import annotations

from itertools import product
from typing import Any, get_args

import pytest
import torch
from torch import Tensor

from aladin_training.losses.boosting import BoostingLoss
from aladin_training.losses.gradient import GradientObjective, PairWeight, TripletWeight
from aladin_training.losses.intra_modal import IntraModalConstraintLoss
from aladin_training.losses.listnet import ListNetLoss
from aladin_training.losses.offline_quintuplet import OfflineQuintupletLoss, OfflineScores
from aladin_training.losses.triplet import TripletMarginLoss
from tests.training.losses import equations
from tests.training.losses.equations import Cell

TOLERANCE = {"rtol": 1e-6, "atol": 1e-9}
# Photos, captions of each, and whether the last photo is the first once more.
BATCHES = [
    (2, 1, False),
    (3, 1, False),
    (5, 1, True),
    (9, 1, True),
    (2, 2, False),
    (4, 2, True),
    (3, 5, False),
]
SQUARE = [each for each in BATCHES if each[1] == 1]


class Batch:
    """Random scores in (-1, 1) of some photos and captions, without ties."""

    def __init__(self, photos: int, captions: int, repeated: bool) -> None:
        generator = torch.Generator().manual_seed(100 * photos + 10 * captions + repeated)
        ids = torch.arange(photos)
        if repeated:
            ids[-1] = 0
        owners = torch.arange(photos).repeat_interleave(captions)
        self.pairs: list[Cell] = [(int(i), t) for t, i in enumerate(owners)]
        self.positives = torch.tensor(self.pairs)
        self.negatives = ids.unsqueeze(1) != ids[owners].unsqueeze(0)

        def scores(*shape: int) -> Tensor:
            return 1.8 * torch.rand(*shape, generator=generator, dtype=torch.float64) - 0.9

        self.scores, self.anchor = (scores(photos, photos * captions) for _ in range(2))
        self.offline = [scores(photos) for _ in range(4)]
        for each in (self.scores, self.anchor):
            each[self.positives[:, 0], self.positives[:, 1]] /= 2
            each[self.positives[:, 0], self.positives[:, 1]] += 0.4
        self.scores.requires_grad_()
        # An anchor that is sure of much, and a target that has just left it: the soft margins of
        # the negatives differ by more than their gaps.
        self.sure = (2 * self.anchor).tanh()
        self.near = (self.sure + 0.2 * scores(*self.sure.shape)).requires_grad_()


@pytest.fixture(params=BATCHES, ids=str)
def batch(request: pytest.FixtureRequest) -> Batch:
    return Batch(*request.param)


@pytest.fixture(params=SQUARE, ids=str)
def square(request: pytest.FixtureRequest) -> Batch:
    return Batch(*request.param)


def every(**options: list[Any]) -> list[dict[str, Any]]:
    return [dict(zip(options, each, strict=True)) for each in product(*options.values())]


def agree(found: Tensor, expected: Tensor, inputs: list[Tensor], case: object) -> None:
    ours = torch.autograd.grad(found, inputs)
    theirs = torch.autograd.grad(expected, inputs, allow_unused=True, materialize_grads=True)
    for a, b in zip((found, *ours), (expected, *theirs), strict=True):
        torch.testing.assert_close(a, b, **TOLERANCE, msg=lambda text: f"{case}: {text}")


def test_triplet(batch: Batch) -> None:
    for options in every(margin=[0.2, 0.7, 0.0, 1.5], hardest_negative=[True, False]):
        found = TripletMarginLoss(**options)(batch.scores, batch.negatives, batch.positives)
        expected = equations.triplet(batch.scores, batch.negatives, batch.pairs, **options)
        agree(found, expected, [batch.scores], options)


def test_listnet(batch: Batch) -> None:
    for options in every(temperature=[6.0, 1.0, 20.0], teacher_scale=[1.0, 5.0, 0.5]):
        found = ListNetLoss(**options)(batch.scores, 10 * batch.anchor)
        expected = equations.listnet(batch.scores, 10 * batch.anchor, **options)
        agree(found, expected, [batch.scores], options)


@pytest.mark.parametrize("form", ["relative", "absolute"])
def test_boosting(form: str, batch: Batch) -> None:
    for options in every(
        form=[form],
        hardest_negative=[True, False],
        soft=[False, True],
        selection=["gap", "cost"],
        margin=[0.2, 0.6],
        alpha=[0.5, 0.2, 1.0, 0.0],
    ):
        for target, anchor in ((batch.scores, batch.anchor), (batch.near, batch.sure)):
            found = BoostingLoss(**options)(target, anchor, batch.negatives, batch.positives)
            expected = equations.boosting(target, anchor, batch.negatives, batch.pairs, **options)
            agree(found, expected, [target], options)


@pytest.mark.parametrize("form", ["triplet", "quintuplet", "adaptive", "online_quintuplet"])
def test_offline_quintuplet(form: str, square: Batch) -> None:
    offline = [each.requires_grad_() for each in square.offline]
    used = offline[:2] if form in ("triplet", "online_quintuplet") else offline
    for options in every(
        form=[form],
        online_margin=[0.2, -10.0],
        offline_margin=[0.0, 0.3],
        alpha=[0.3, 1.0],
        beta=[1.5, 0.5],
        weight_by=["offline", "positive"],
    ):
        found = OfflineQuintupletLoss(**options)(
            square.scores, OfflineScores(*offline), square.negatives
        )
        expected = equations.quintuplet(
            square.scores, square.negatives, equations.Offline(*offline), **options
        )
        agree(found, expected, [square.scores, *used], options)


@pytest.mark.parametrize("triplet_weight", get_args(TripletWeight))
@pytest.mark.parametrize("pair_weight", get_args(PairWeight))
def test_gradient(triplet_weight: TripletWeight, pair_weight: PairWeight, batch: Batch) -> None:
    for options in (
        {},
        {"gate": False},
        {"circle_offset": 0.5},
        {"empty": 1.0},
        {"empty": 1.0, "epsilon": -0.6},  # most sets are empty
        {"tau": 1.0},
        {"margin": 0.6, "tau": 3.0, "alpha": 1.0, "beta": 4.0, "threshold": 0.2, "epsilon": 0.4},
    ):
        loss = GradientObjective(triplet_weight, pair_weight, **options)
        found = loss(batch.scores, batch.negatives, batch.positives)
        logged, G = equations.goal(
            batch.scores, batch.negatives, batch.pairs, triplet_weight, pair_weight, **options
        )
        assert found.item() == pytest.approx(logged, rel=1e-6, abs=1e-9)
        (gradient,) = torch.autograd.grad(found, batch.scores)
        torch.testing.assert_close(gradient, G, **TOLERANCE)


@pytest.mark.parametrize("unit", [True, False], ids=["unit length", "any length"])
@pytest.mark.parametrize("rows", [2, 5, 8])
@pytest.mark.parametrize("mode", ["official", "paper"])
@pytest.mark.parametrize("distance", ["l1", "l2", "msd", "cos"])
def test_intra_modal(distance: str, mode: str, rows: int, unit: bool) -> None:
    generator = torch.Generator().manual_seed(rows)
    centre = torch.randn(4, generator=generator, dtype=torch.float64)
    noise = torch.randn(rows, 4, generator=generator, dtype=torch.float64)
    directions = torch.nn.functional.normalize(centre + 0.8 * noise, dim=1)
    lengths = torch.linspace(0.4, 2.5, rows, dtype=torch.float64).unsqueeze(1)
    V = (directions if unit else lengths * directions).clone().requires_grad_()
    counted = 0
    for options in every(
        band=[(0.05, 0.5), (0.2, 0.9), (0.0, 1.0), (0.3, 1.4)], weight=[1.0, 10.0]
    ):
        lower, upper = options["band"]
        if mode == "official" and distance != "cos" and upper > 1:
            continue  # quantiles
        chosen = {"lower": lower, "upper": upper, "weight": options["weight"]}
        found = IntraModalConstraintLoss(distance, mode=mode, **chosen)(V)
        expected = equations.intra_modal(V, distance, mode=mode, **chosen)
        agree(found, expected, [V], chosen)
        counted += found.item() != 0
    assert counted or rows == 2  # of which a band of quantiles may hold none


def test_official_cos_is_the_inner_product_and_the_papers_the_cosine() -> None:
    V = torch.tensor([[3.0, 4.0], [2.0, 0.0]], dtype=torch.float64)
    by_hand = {"official": 0.0, "paper": 2 * (1 - 6 / (5 * 2))}
    for mode, value in by_hand.items():
        assert equations.intra_modal(V, "cos", mode=mode).item() == pytest.approx(value)
