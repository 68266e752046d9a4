"""Several captions of a photo in a batch: what every loss of rectangular matrices keeps to."""

from __future__ import annotations

import inspect
from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn

from aladin_network.errors import ConfigError, ShapeError
from aladin_training.losses import LOSSES
from aladin_training.losses.boosting import BoostingLoss
from aladin_training.losses.gradient import GradientObjective
from aladin_training.losses.infonce import InfoNCELoss
from aladin_training.losses.negatives import negative_mask
from aladin_training.losses.triplet import TripletMarginLoss
from aladin_training.tasks.pair_tasks import positive_pairs

Loss = Callable[[Tensor, Tensor, Tensor | None], Tensor]

LARGE = 9.0  # a margin at which every hinge is active


def with_anchor(loss: BoostingLoss) -> Loss:
    """Boost beyond an anchor whose scores are half of the target's."""

    def of(scores: Tensor, negatives: Tensor, positives: Tensor | None = None) -> Tensor:
        return loss(scores, scores.detach() / 2, negatives, positives)

    return of


RECTANGULAR: dict[str, tuple[type[nn.Module], Loss]] = {
    "MH": (TripletMarginLoss, TripletMarginLoss(LARGE)),
    "SH": (TripletMarginLoss, TripletMarginLoss(LARGE, hardest_negative=False)),
    "InfoNCE": (InfoNCELoss, InfoNCELoss(0.5)),
    "RM": (BoostingLoss, with_anchor(BoostingLoss("relative", margin=LARGE))),
    "RS": (BoostingLoss, with_anchor(BoostingLoss("relative", False, margin=LARGE))),
    "AM": (BoostingLoss, with_anchor(BoostingLoss("absolute", margin=LARGE))),
    "AS": (BoostingLoss, with_anchor(BoostingLoss("absolute", False, margin=LARGE))),
    "RM, soft": (BoostingLoss, with_anchor(BoostingLoss("relative", soft=True, margin=LARGE))),
    **{
        f"GOAL {triplet} {pair}": (GradientObjective, GradientObjective(triplet, pair, gate=False))
        for triplet, pair in (
            ("con", "con"),
            ("nca", "con"),
            ("cir", "lin"),
            ("con", "sig"),
            ("nca", "lin_ms"),
            ("cir", "sig_ms"),
        )
    },
}
EVERY_LOSS = pytest.mark.parametrize(
    "loss", [each for _, each in RECTANGULAR.values()], ids=RECTANGULAR
)


def batch(
    photos: int = 5, captions: int = 3, repeated: bool = True
) -> tuple[Tensor, Tensor, Tensor]:
    """Scores, negatives and positive pairs; if `repeated`, photo 4 is photo 0 once more."""
    ids = torch.arange(photos)
    if repeated:
        ids[-1] = ids[0]
    owners = torch.arange(photos).repeat_interleave(captions)
    generator = torch.Generator().manual_seed(10 * photos + captions)
    scores = torch.rand(photos, len(owners), generator=generator, dtype=torch.float64)
    pairs = torch.stack([owners, torch.arange(len(owners))], dim=1)
    return scores.requires_grad_(), negative_mask(ids, ids[owners]), pairs


def gradient(loss: Loss, scores: Tensor, negatives: Tensor, pairs: Tensor | None) -> Tensor:
    return torch.autograd.grad(loss(scores, negatives, pairs), scores)[0]


def test_all_losses_of_rectangular_matrices_are_here() -> None:
    declared = {each for each in LOSSES.values() if getattr(each, "rectangular", False)}
    assert {kind for kind, _ in RECTANGULAR.values()} == declared


@EVERY_LOSS
def test_order_of_photos_and_captions_does_not_matter(loss: Loss) -> None:
    scores, negatives, pairs = batch()
    generator = torch.Generator().manual_seed(3)
    rows, columns = (torch.randperm(n, generator=generator) for n in scores.shape)
    moved = torch.stack([rows.argsort()[pairs[:, 0]], columns.argsort()[pairs[:, 1]]], dim=1)
    moved = moved[torch.randperm(len(moved), generator=generator)]
    direct, shuffled = (
        loss(scores, negatives, pairs),
        loss(scores[rows][:, columns], negatives[rows][:, columns], moved),
    )
    torch.testing.assert_close(shuffled, direct)
    torch.testing.assert_close(
        torch.autograd.grad(shuffled, scores), torch.autograd.grad(direct, scores)
    )


@EVERY_LOSS
def test_one_caption_a_photo_is_the_square_form(loss: Loss) -> None:
    scores, negatives, pairs = batch(captions=1)
    torch.testing.assert_close(loss(scores, negatives, pairs), loss(scores, negatives, None))
    torch.testing.assert_close(
        gradient(loss, scores, negatives, pairs), gradient(loss, scores, negatives, None)
    )


@EVERY_LOSS
def test_a_repeated_photo_and_its_captions_are_no_negatives_of_each_other(loss: Loss) -> None:
    scores, negatives, pairs = batch()
    neither = ~negatives
    neither[pairs[:, 0], pairs[:, 1]] = False
    assert neither.sum() == 2 * 3  # either photo with the captions of the other
    assert not gradient(loss, scores, negatives, pairs)[neither].any()
    changed = scores.detach().clone()
    changed[neither] = 0.99
    torch.testing.assert_close(loss(changed, negatives, pairs), loss(scores, negatives, pairs))


@EVERY_LOSS
def test_each_pair_asks_in_both_directions_and_nothing_else_gets_a_gradient(loss: Loss) -> None:
    """Photo 1 and caption 6, of photo 2, are all that may be negatives of each other.

    So the photo asks once for each of its captions 3 to 5, and caption 6 once for its photo.
    """
    scores, negatives, pairs = batch()
    alone = torch.zeros_like(negatives)
    alone[1, 6] = True
    found = gradient(loss, scores, alone, pairs)
    moved = {(int(i), int(t)) for i, t in found.nonzero()}
    assert moved == {(1, 6), (1, 3), (1, 4), (1, 5), (2, 6)}
    assert found[1, 6] > 0
    assert all(found[cell] < 0 for cell in moved - {(1, 6)})


@pytest.mark.parametrize("name", ["MH", "SH", "RM", "RS", "AM", "AS"])
def test_a_hinge_counts_once_for_each_query(name: str) -> None:
    scores, negatives, pairs = batch()
    alone = torch.zeros_like(negatives)
    alone[1, 6] = True
    assert gradient(RECTANGULAR[name][1], scores, alone, pairs)[1, 6] == 3 + 1


@pytest.mark.parametrize("name", ["SH", "RS", "AS"])
def test_sums_over_negatives_have_each_other_photo_once(name: str) -> None:
    """A negative pair is a negative of three pairs of its photo and of its caption's one pair.

    A caption's negatives are the four other photos, not their twelve captions; two are the same
    photo as its own for captions of photos 0 and 4.
    """
    scores, negatives, pairs = batch()
    found = gradient(RECTANGULAR[name][1], scores, negatives, pairs)
    assert set(found[negatives].tolist()) == {3 + 1}
    for photo, caption in pairs.tolist():
        of_photo, of_caption = int(negatives[photo].sum()), int(negatives[:, caption].sum())
        assert (of_photo, of_caption) == ((9, 3) if photo in (0, 4) else (12, 4))
        assert found[photo, caption] == -(of_photo + of_caption)


@EVERY_LOSS
@pytest.mark.parametrize("photos", [1, 4])
def test_a_batch_of_one_photo_costs_nothing(loss: Loss, photos: int) -> None:
    scores, negatives, pairs = batch(photos, repeated=False)
    negatives = torch.zeros_like(negatives)  # the photos are all the same
    assert loss(scores, negatives, pairs).item() == 0
    assert not gradient(loss, scores, negatives, pairs).any()


@EVERY_LOSS
def test_pairs_off_the_diagonal_have_to_be_named(loss: Loss) -> None:
    scores, negatives, _ = batch()
    with pytest.raises(ShapeError, match=r"\(batch, batch\), got \(5, 15\)"):
        loss(scores, negatives, None)


# Losses of all pairs alike, and of one modality, single no pair out.
SQUARE = [
    each
    for each in LOSSES.values()
    if "negatives" in inspect.signature(each.forward).parameters
    and not getattr(each, "rectangular", False)
]


@pytest.mark.parametrize("kind", SQUARE)
def test_losses_of_square_matrices_are_refused(kind: type[nn.Module]) -> None:
    _, negatives, _ = batch()
    expected = f"{kind.__name__} takes one caption for each photo, but captions_per_photo is 3"
    with pytest.raises(ConfigError, match=expected):
        positive_pairs(kind(), negatives)
