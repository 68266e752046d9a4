"""What every loss keeps to: order, repeated photos, lonely batches, gradients, refusals."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import pytest
import torch
from torch import Tensor, nn

from aladin_network.errors import ConfigError, ShapeError
from aladin_training.losses import LOSSES
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
from aladin_training.losses.reverse_divergence import ReverseDivergenceLoss
from aladin_training.losses.score_regression import ScoreRegressionLoss
from aladin_training.losses.triplet import TripletMarginLoss
from aladin_training.tasks.pair_tasks import positive_pairs

LARGE = 9.0  # a margin at which every hinge is active


class Batch(NamedTuple):
    """Scores, those of a teacher or an anchor, negatives, pairs (None: the diagonal)."""

    scores: Tensor
    other: Tensor
    negatives: Tensor
    pairs: Tensor | None


def of_pairs(loss: nn.Module, batch: Batch) -> Tensor:
    return loss(batch.scores, batch.negatives, batch.pairs)


def of_square(loss: nn.Module, batch: Batch) -> Tensor:
    return loss(batch.scores, batch.negatives)


def beyond_anchor(loss: nn.Module, batch: Batch) -> Tensor:
    return loss(batch.scores, batch.other, batch.negatives, batch.pairs)


def of_teacher(loss: nn.Module, batch: Batch) -> Tensor:
    return loss(batch.scores, batch.other)


def with_offline(loss: nn.Module, batch: Batch) -> Tensor:
    own = batch.other.diagonal()
    return loss(batch.scores, OfflineScores(own, own - 0.1, own - 0.2, own - 0.3), batch.negatives)


RECTANGULAR: dict[str, nn.Module] = {
    "MH": TripletMarginLoss(LARGE),
    "SH": TripletMarginLoss(LARGE, hardest_negative=False),
    "InfoNCE": InfoNCELoss(0.5),
    "RM": BoostingLoss("relative", margin=LARGE),
    "RS": BoostingLoss("relative", False, margin=LARGE),
    "AM": BoostingLoss("absolute", margin=LARGE),
    "AS": BoostingLoss("absolute", False, margin=LARGE),
    "RM, soft": BoostingLoss("relative", soft=True, margin=LARGE),
    **{
        f"GOAL {triplet} {pair}": GradientObjective(triplet, pair, gate=False)
        for triplet, pair in (
            *(("con", "con"), ("nca", "con"), ("cir", "lin")),
            *(("con", "sig"), ("nca", "lin_ms"), ("cir", "sig_ms")),
        )
    },
}
SQUARE: dict[str, tuple[nn.Module, Callable[[nn.Module, Batch], Tensor]]] = {
    "polynomial": (PolynomialLoss(), of_square),
    "projection": (ProjectionMatchingLoss(), of_square),
    **{
        f"AOQ {form}": (OfflineQuintupletLoss(form), with_offline)
        for form in ("triplet", "quintuplet", "adaptive", "online_quintuplet")
    },
    "constraint": (IntraModalConstraintLoss("l2", mode="paper", upper=9.0), of_square),
    "constraint, cos": (IntraModalConstraintLoss("cos", upper=0.7), of_square),
    "listnet": (ListNetLoss(), of_teacher),
    "dark rank": (DarkRankLoss(), of_teacher),
    "regression": (ScoreRegressionLoss(), of_teacher),
    "divergence": (ReverseDivergenceLoss(), of_teacher),
}
EVERY = [*RECTANGULAR, *SQUARE]
OF_ALL_PAIRS = ("regression", "projection")  # positives and negatives alike
WITH_TEACHER = ["RM", "AS", "RM, soft", "listnet", "dark rank", "regression", "divergence"]


def value(name: str, batch: Batch) -> Tensor:
    if name in SQUARE:
        loss, call = SQUARE[name]
        return call(loss, batch)
    loss = RECTANGULAR[name]
    return (beyond_anchor if isinstance(loss, BoostingLoss) else of_pairs)(loss, batch)


def gradient(name: str, batch: Batch) -> Tensor:
    return torch.autograd.grad(value(name, batch), batch.scores)[0]


def batch_of(photos: int = 5, captions: int = 1, repeated: bool = True) -> Batch:
    """Random scores; if `repeated`, the last photo is photo 0 once more."""
    ids = torch.arange(photos)
    if repeated:
        ids[-1] = ids[0]
    owners = torch.arange(photos).repeat_interleave(captions)
    generator = torch.Generator().manual_seed(10 * photos + captions)
    scores, other = torch.rand(2, photos, len(owners), generator=generator, dtype=torch.float64)
    listed = torch.stack([owners, torch.arange(len(owners))], dim=1) if captions > 1 else None
    negatives = negative_mask(ids, ids[owners])
    return Batch(scores.requires_grad_(), other.requires_grad_(), negatives, listed)


def test_every_registered_loss_is_here_and_has_defaults() -> None:
    here = {type(loss) for loss in RECTANGULAR.values()} | {
        type(loss) for loss, _ in SQUARE.values()
    }
    assert here == set(LOSSES.values())
    rectangular = {each for each in LOSSES.values() if getattr(each, "rectangular", False)}
    assert rectangular == {type(loss) for loss in RECTANGULAR.values()}
    for kind in LOSSES.values():
        kind()


@pytest.mark.parametrize(
    ("name", "captions"), [(name, 1) for name in EVERY] + [(name, 3) for name in RECTANGULAR]
)
def test_order_of_photos_and_captions_does_not_matter(name: str, captions: int) -> None:
    batch = batch_of(captions=captions)
    generator = torch.Generator().manual_seed(3)
    rows = torch.randperm(batch.scores.shape[0], generator=generator)
    columns, listed = rows, None
    if batch.pairs is not None:
        columns = torch.randperm(batch.scores.shape[1], generator=generator)
        photos, texts = batch.pairs.T
        listed = torch.stack([rows.argsort()[photos], columns.argsort()[texts]], dim=1)
        listed = listed[torch.randperm(len(listed), generator=generator)]
    moved = Batch(*(each[rows][:, columns] for each in batch[:3]), listed)
    direct, shuffled = value(name, batch), value(name, moved)
    torch.testing.assert_close(shuffled, direct)
    ours, theirs = (torch.autograd.grad(each, batch.scores) for each in (shuffled, direct))
    torch.testing.assert_close(ours, theirs)


@pytest.mark.parametrize("name", EVERY)
def test_the_gradient_is_that_of_the_value_and_grows_with_it(name: str) -> None:
    batch = batch_of()
    if not name.startswith("GOAL"):  # which prescribes its gradient
        assert torch.autograd.gradcheck(
            lambda scores: value(name, batch._replace(scores=scores)), (batch.scores,)
        )
    (scaled,) = torch.autograd.grad(1024 * value(name, batch) + 3, batch.scores)
    torch.testing.assert_close(scaled, 1024 * gradient(name, batch))


@pytest.mark.parametrize("name", WITH_TEACHER)
def test_teachers_and_anchors_get_no_gradient(name: str) -> None:
    batch = batch_of()
    value(name, batch).backward()
    assert batch.other.grad is None
    assert batch.scores.grad is not None


@pytest.mark.parametrize(
    ("name", "photos"),
    [(name, 1) for name in EVERY if name not in OF_ALL_PAIRS]
    + [(name, 4) for name in EVERY if name not in (*OF_ALL_PAIRS, *WITH_TEACHER[3:])],
)
def test_a_batch_of_one_photo_costs_nothing(name: str, photos: int) -> None:
    batch = batch_of(photos, 3 if name in RECTANGULAR else 1, repeated=False)
    batch = batch._replace(negatives=torch.zeros_like(batch.negatives), other=batch.other - 2)
    assert value(name, batch).item() == pytest.approx(0, abs=1e-6)
    torch.testing.assert_close(gradient(name, batch), torch.zeros_like(batch.scores))


@pytest.mark.parametrize("name", EVERY)
def test_large_scores_stay_finite(name: str) -> None:
    scores = torch.tensor([[-50.0, 50.0], [50.0, -50.0]], requires_grad=True)
    batch = Batch(scores, -10 * scores.detach(), negative_mask(torch.arange(2)), None)
    if name == "GOAL cir sig_ms":  # overflowing weights show in the loss
        assert value(name, batch._replace(scores=scores * 1e3)).isnan()
    else:
        assert value(name, batch).isfinite()
        assert gradient(name, batch).isfinite().all()


@pytest.mark.parametrize(
    "name", [*RECTANGULAR, "polynomial", *(each for each in SQUARE if "AOQ" in each)]
)
def test_a_repeated_photo_and_its_captions_are_no_negatives_of_each_other(name: str) -> None:
    batch = batch_of(captions=3 if name in RECTANGULAR else 1)
    neither = ~batch.negatives
    if batch.pairs is None:
        neither &= ~torch.eye(5, dtype=torch.bool)
    else:
        neither[batch.pairs[:, 0], batch.pairs[:, 1]] = False
    assert neither.any()
    assert not gradient(name, batch)[neither].any()
    changed = batch._replace(scores=batch.scores.detach().masked_fill(neither, 0.99))
    torch.testing.assert_close(value(name, changed), value(name, batch))


@pytest.mark.parametrize("name", RECTANGULAR)
def test_each_pair_asks_in_both_directions_and_nothing_else_gets_a_gradient(name: str) -> None:
    """Photo 1 and caption 6, of photo 2, are all that may be negatives of each other.

    So the photo asks once for each of its captions 3 to 5, and caption 6 once for its photo.
    """
    batch = batch_of(captions=3)
    alone = torch.zeros_like(batch.negatives)
    alone[1, 6] = True
    found = gradient(name, batch._replace(negatives=alone))
    moved = {(int(i), int(t)) for i, t in found.nonzero()}
    assert moved == {(1, 6), (1, 3), (1, 4), (1, 5), (2, 6)}
    assert found[1, 6] > 0
    assert all(found[cell] < 0 for cell in moved - {(1, 6)})
    if name in ("MH", "SH", "RM", "RS", "AM", "AS"):
        assert found[1, 6] == 3 + 1  # a hinge counts once for each query


@pytest.mark.parametrize(
    ("kind", "options", "says"),
    [
        (BoostingLoss, {"form": "ratio"}, "unknown form 'ratio', known are .*'relative'"),
        (BoostingLoss, {"selection": "top"}, "unknown selection 'top', known are .*'gap', 'cost'"),
        (BoostingLoss, {"alpha": 1.5}, r"got 0\.2 and 1\.5"),
        (BoostingLoss, {"margin": -0.1}, r"got -0\.1 and 0\.5"),
        (DarkRankLoss, {"distance": "l2"}, "unknown distance 'l2'"),
        (DarkRankLoss, {"length": 1}, "got 3.0, 3.0 and 1"),
        (GradientObjective, {"triplet_weight": "arc"}, "unknown triplet_weight 'arc', known are"),
        (GradientObjective, {"pair_weight": "cir"}, "unknown pair_weight 'cir', known .*'lin_ms'"),
        (InfoNCELoss, {"temperature": 0}, "positive, got 0"),
        (IntraModalConstraintLoss, {"distance": "l3"}, "unknown distance 'l3', known .*'l1'"),
        (IntraModalConstraintLoss, {"mode": "code"}, "unknown mode 'code', known are .*'official'"),
        (IntraModalConstraintLoss, {"lower": 0.5}, r"below upper, got 0\.5 and 0\.5"),
        (IntraModalConstraintLoss, {"upper": 7}, r"quantiles within \[0, 1\], got 0\.05 and 7"),
        (ListNetLoss, {"temperature": -6}, "positive, got -6"),
        (ListNetLoss, {"teacher_scale": 0}, r"got 6\.0 and 0"),
        (OfflineQuintupletLoss, {"form": "quad"}, "unknown form 'quad', known are .*'quintuplet'"),
        (OfflineQuintupletLoss, {"weight_by": "online"}, "unknown weight_by 'online'"),
        (OfflineQuintupletLoss, {"alpha": 0}, "alpha must be positive, got 0"),
        (PolynomialLoss, {"positive": ()}, "at least one coefficient"),
        (ProjectionMatchingLoss, {"temperature": 0}, "positive, got 0 and 1e-08"),
        (ProjectionMatchingLoss, {"epsilon": -1}, "positive, got 10.0 and -1"),
        (ReverseDivergenceLoss, {"temperature": -1}, "positive, got -1"),
        (ScoreRegressionLoss, {"threshold": 0}, "positive, got 0"),
    ],
)
def test_impossible_options_are_refused(
    kind: type[nn.Module], options: dict[str, Any], says: str
) -> None:
    with pytest.raises(ConfigError, match=says):
        kind(**options)


TWO, WIDE, TALL = torch.zeros(2, 2), torch.zeros(2, 3), torch.zeros(3, 2)
NEGATIVES = negative_mask(torch.arange(2))


@pytest.mark.parametrize("name", EVERY)
def test_matrices_of_other_shapes_are_refused(name: str) -> None:
    """Pairs off the diagonal have to be named; a teacher scores the same pairs."""
    batch = Batch(WIDE, TALL if name in WITH_TEACHER else WIDE, torch.zeros(2, 3).bool(), None)
    if name != "projection":  # of which only the mask has to fit
        with pytest.raises(ShapeError, match=r"got \((2, 3|3, 2)\)"):
            value(name, batch)
    if name not in WITH_TEACHER[3:]:
        with pytest.raises(ShapeError, match=r"\(2, 1\)"):
            value(name, Batch(TWO, TWO, NEGATIVES[:, :1], None))


@pytest.mark.parametrize(
    ("form", "offline", "error", "says"),
    [
        ("adaptive", OfflineScores(TWO[0], TWO[0]), ConfigError, "'adaptive' needs cross scores"),
        ("triplet", OfflineScores(TWO[0], TWO[0, :1]), ShapeError, r"image \(2,\), got \(1,\)"),
    ],
)
def test_offline_scores_that_are_missing_are_refused(
    form: str, offline: OfflineScores, error: type[Exception], says: str
) -> None:
    with pytest.raises(error, match=says):
        OfflineQuintupletLoss(form)(TWO, offline, NEGATIVES)


@pytest.mark.parametrize("name", ["polynomial", "projection", "AOQ triplet", "constraint"])
def test_losses_of_square_matrices_take_one_caption_a_photo(name: str) -> None:
    loss = SQUARE[name][0]
    expected = (
        f"{type(loss).__name__} takes one caption for each photo, but captions_per_photo is 3"
    )
    with pytest.raises(ConfigError, match=expected):
        positive_pairs(loss, batch_of(captions=3).negatives)
