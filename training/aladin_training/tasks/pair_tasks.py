"""The terms of a stage's loss: each task applies one loss to the scores of a batch.

Ranking (all papers), boosting and imitation of anchors (DBL), quintuplets with mined negatives
(AOQ), distillation (ALADIN), the intra-modal constraint (IMC), and ranking among captions.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor, nn

from aladin_network.errors import ConfigError
from aladin_network.types import ScoreName
from aladin_training.losses.offline_quintuplet import OfflineQuintupletLoss
from aladin_training.tasks.scores import BatchScores


class PairTask(nn.Module):
    """One term of a stage's loss; it owns its loss, and thereby the loss's trained parameters."""

    def __init__(self, loss: nn.Module) -> None:
        super().__init__()
        self.loss = loss

    def forward(self, scores: BatchScores) -> Tensor:
        """Return the scalar loss of a batch."""
        raise NotImplementedError


class ScoreTask(PairTask):
    """A task on one of the network's scores."""

    def __init__(self, loss: nn.Module, score: ScoreName) -> None:
        super().__init__(loss)
        self.score: ScoreName = score

    def mean_over_anchors(
        self, scores: BatchScores, loss_against: Callable[[Tensor, Tensor], Tensor]
    ) -> Tensor:
        """Average a loss over the anchors of a batch.

        Args:
            scores: Scores of the batch.
            loss_against: Loss of the network's score and an anchor's.

        Returns:
            The mean, or 0 of a branch without anchors, the first one of the online scenario.
        """
        own = scores.of(self.score)
        if not scores.anchors:
            return own.new_zeros(())
        anchors = [anchor.of(self.score).detach() for anchor in scores.anchors]
        return torch.stack([loss_against(own, anchor) for anchor in anchors]).mean()


class RankingTask(ScoreTask):
    """Ranking loss: each photo's own captions, and each caption's own photo, should be first.

    On the alignment score this trains ALADIN's teacher (eq 3), on the matching score its variants
    T. Any loss of scores and negatives fits.
    """

    def forward(self, scores: BatchScores) -> Tensor:
        """Return the scalar loss of a batch."""
        return rank(self.loss, scores.of(self.score), scores.negatives)


def rank(loss: nn.Module, scores: Tensor, negatives: Tensor) -> Tensor:
    """Apply a ranking loss to a matrix in which text n belongs to image n // K.

    Args:
        loss: Loss of scores, negatives and, if it is `rectangular`, positive pairs.
        scores: Scores, (B, B * K).
        negatives: Mask of the pairs that may serve as negatives, of the same shape.

    Raises:
        ConfigError: If K is above 1 and the loss is not `rectangular`.
    """
    return loss(scores, negatives, *positive_pairs(loss, negatives))


def positive_pairs(loss: nn.Module, negatives: Tensor) -> tuple[Tensor] | tuple[()]:
    """Return the last argument of a loss on a matrix in which text n belongs to image n // K.

    Rows are not repeated to make such a matrix square: a loss that sums over the negatives of a
    text would count each image K times.

    Returns:
        Nothing if the positive pairs are the diagonal (K = 1), else (row, column) of each pair,
        (B * K, 2).

    Raises:
        ConfigError: If K is above 1 and the loss is not `rectangular`.
    """
    images, texts = negatives.shape
    if images == texts:
        return ()
    per_image = texts // images
    if not getattr(loss, "rectangular", False):
        raise ConfigError(
            f"{type(loss).__name__} takes one caption for each photo, "
            f"but captions_per_photo is {per_image}: set it to 1 or null"
        )
    text = torch.arange(texts, device=negatives.device)
    return (torch.stack([text // per_image, text], dim=1),)


class BoostingTask(ScoreTask):
    """Boosts a target beyond its anchors: a loss against each anchor, averaged over them."""

    def forward(self, scores: BatchScores) -> Tensor:
        """Return the scalar loss of a batch."""
        negatives = scores.negatives
        pairs = positive_pairs(self.loss, negatives)
        return self.mean_over_anchors(
            scores, lambda target, anchor: self.loss(target, anchor, negatives, *pairs)
        )


class ImitationTask(ScoreTask):
    """Transfers the scores of the anchors: a loss of student and teacher, averaged over anchors.

    DBL compares boosting with it: mutual learning (DML) with online anchors, self-distillation
    (DINO) with a momentum anchor, conventional distillation with an offline one.
    """

    def forward(self, scores: BatchScores) -> Tensor:
        """Return the scalar loss of a batch."""
        return self.mean_over_anchors(scores, self.loss)


class QuintupletTask(ScoreTask):
    """Adaptive offline quintuplet loss and its simpler forms (AOQ eqs 3 to 5)."""

    def __init__(self, loss: nn.Module, score: ScoreName) -> None:
        super().__init__(loss, score)
        assert isinstance(loss, OfflineQuintupletLoss)
        # Without cross terms, as in eq 3, two of the six batches need not be encoded.
        self._cross = loss.takes_cross

    def forward(self, scores: BatchScores) -> Tensor:
        """Return the scalar loss of a batch."""
        offline = scores.offline(self.score, cross=self._cross)
        return self.loss(scores.of(self.score), offline, scores.negatives)


class DistillationTask(ScoreTask):
    """ListNet from the teacher's scores to one of the network's; every pair of a batch counts.

    In the paper (eqs 5-7) the teacher is the alignment head of the same network, and the matching
    score learns from it. An addition to the paper is an alignment score that learns from an
    earlier network, whose scores also tell how similar negatives are.
    """

    def forward(self, scores: BatchScores) -> Tensor:
        """Return the scalar loss of a batch; no gradient reaches the teacher's scores."""
        return self.loss(scores.of(self.score), scores.teacher())


class IntraModalTask(PairTask):
    """Intra-modal constraint on the photos' embeddings plus that on the captions'.

    It accompanies a ranking task on the matching score (IMC eq 3). Captions of one photo do not
    constrain each other, and neither does a photo that occurs twice in the batch.
    """

    def forward(self, scores: BatchScores) -> Tensor:
        """Return the scalar loss of a batch."""
        images, texts = scores.embeddings()
        photos = len(images)
        per_photo = len(texts) // photos
        # Two photos differ if a caption of one is a negative of the other; a short text holds for
        # other photos, too, so that not every caption has to be.
        of_photos = scores.negatives.view(photos, photos, per_photo).any(dim=2)
        of_texts = scores.negatives.repeat_interleave(per_photo, dim=0)
        # In float32: the steps of bfloat16 near 1 are too coarse for bounds such as 0.95.
        with torch.autocast(images.device.type, enabled=False):
            of_images = self.loss(images, of_photos | of_photos.T)
            return of_images + self.loss(texts, of_texts & of_texts.T)


class CaptionTask(PairTask):
    """Ranking loss between the first and the second caption of each photo of a batch.

    Not in the papers: with few photos, the text tower learns from captions with the same meaning
    in other words what it cannot learn from one caption for each photo.
    """

    def forward(self, scores: BatchScores) -> Tensor:
        """Return the scalar loss of a batch.

        Raises:
            ConfigError: If the stage shows only one caption of each photo.
        """
        negatives = scores.negatives
        per_photo = negatives.shape[1] // negatives.shape[0]
        if per_photo < 2:
            raise ConfigError("task captions needs captions_per_photo of at least 2")
        # A short text holds for other photos, too, and is no negative of their captions.
        firsts, seconds = negatives[:, 0::per_photo], negatives[:, 1::per_photo]
        return self.loss(scores.captions()[0::per_photo, 1::per_photo], seconds & firsts.T)
