"""A ranking loss on one of the network's scores."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from aladin.scoring import ScoreName
from training.tasks.base import PairTask
from training.tasks.scores import BatchScores


class RankingTask(PairTask):
    """Every photo should rank its captions first, and every caption its photo.

    On the alignment this trains ALADIN's teacher (eq 3), on the matching its variants T; any
    loss of scores and negatives will do.
    """

    def __init__(self, loss: nn.Module, score: ScoreName) -> None:
        super().__init__(loss)
        self.score: ScoreName = score

    def forward(self, scores: BatchScores) -> Tensor:
        """Return the scalar loss of a batch."""
        return rank(self.loss, scores.of(self.score), scores.negatives)


def rank(loss: nn.Module, scores: Tensor, negatives: Tensor) -> Tensor:
    """Apply a ranking loss to a matrix in which text n belongs to image n // K.

    Args:
        loss: of scores, negatives and, if it is `rectangular`, positive pairs.
        scores: (B, B * K).
        negatives: of the same shape.
    """
    images, texts = negatives.shape
    if images == texts:
        return loss(scores, negatives)
    if not getattr(loss, "rectangular", False):
        per_image = texts // images
        return loss(square(scores, per_image), square(negatives, per_image))
    text = torch.arange(texts, device=negatives.device)
    positives = torch.stack([text // (texts // images), text], dim=1)  # (texts, 2)
    return loss(scores, negatives, positives)


def square(matrix: Tensor, captions_per_photo: int) -> Tensor:
    """Repeat each image's row for its captions, so that the positive pairs are the diagonal.

    The hardest negative of a query stays the hardest one.
    """
    return matrix.repeat_interleave(captions_per_photo, dim=0)  # (B * K, B * K)
