"""Several captions of a photo in one batch: no photo is counted twice."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn

from aladin_network.errors import ConfigError
from aladin_training.losses.boosting import BoostingLoss
from aladin_training.losses.negatives import negative_mask
from aladin_training.losses.triplet import TripletMarginLoss
from aladin_training.tasks.pair_tasks import BoostingTask, rank


class Scores:
    """The scores of a batch, given outright."""

    def __init__(self, scores: Tensor, negatives: Tensor, *anchors: Scores) -> None:
        self._scores = scores
        self.negatives = negatives
        self.anchors = anchors

    def of(self, score: str) -> Tensor:
        assert score == "matching"
        return self._scores


class DiagonalLoss(nn.Module):
    """A loss of pairs that are the diagonal of a square matrix."""

    def forward(self, scores: Tensor, *others: Tensor) -> Tensor:
        assert scores.shape[0] == scores.shape[1]
        return sum((other.sum() for other in others), start=scores.sum())


def batch(captions: int) -> tuple[Tensor, Tensor]:
    """Four photos, two of them the same, and their captions."""
    photos = torch.tensor([0, 1, 1, 2])
    negatives = negative_mask(photos, photos.repeat_interleave(captions))
    generator = torch.Generator().manual_seed(captions)
    return torch.rand(negatives.shape, generator=generator, dtype=torch.float64), negatives


def boosting(loss: nn.Module, scores: Tensor, negatives: Tensor) -> Tensor:
    """The loss against an anchor that scores everything 0."""
    anchor = Scores(torch.zeros_like(scores), negatives)
    task = BoostingTask(loss, "matching")
    return task(Scores(scores, negatives, anchor))  # type: ignore[arg-type]


@pytest.mark.parametrize("captions", [1, 2, 3])
@pytest.mark.parametrize("hardest", [True, False])
def test_boosting_an_anchor_without_opinion_is_the_triplet_loss(
    captions: int, hardest: bool
) -> None:
    scores, negatives = batch(captions)
    loss = boosting(BoostingLoss("relative", hardest), scores, negatives)
    torch.testing.assert_close(loss, rank(TripletMarginLoss(0.2, hardest), scores, negatives))


@pytest.mark.parametrize("form", ["relative", "absolute"])
def test_the_sum_of_a_text_query_has_each_photo_once(form: str) -> None:
    scores, negatives = batch(2)
    # With no negatives but those of text 0 (photos 1, 2 and 3) the images are queries with it as
    # their only negative, once for each of their captions.
    only = torch.zeros_like(negatives)
    only[:, 0] = negatives[:, 0]
    anchor = scores.clone()  # a target equal to its anchor pays the margin once a negative
    task = BoostingTask(BoostingLoss(form, hardest_negative=False, margin=0.5), "matching")
    loss = task(Scores(scores, only, Scores(anchor, only)))  # type: ignore[arg-type]
    of_text, of_images = 3 * 0.5, 3 * 2 * 0.5
    assert loss.item() == pytest.approx(of_text + of_images)


def test_a_loss_of_square_matrices_takes_one_caption_a_photo() -> None:
    loss = DiagonalLoss()
    rank(loss, *batch(1))
    boosting(loss, *batch(1))
    expected = "DiagonalLoss takes one caption for each photo, but captions_per_photo is 2"
    for apply in (rank, boosting):
        with pytest.raises(ConfigError, match=expected):
            apply(loss, *batch(2))
