"""A ranking loss on one of the network's scores."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from aladin.errors import ConfigError
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
        loss: Loss of scores, negatives and, if it is `rectangular`, positive pairs.
        scores: Scores, (B, B * K).
        negatives: Mask of the pairs that may serve as negatives, of the same shape.

    Raises:
        ConfigError: If K is above 1 and the loss is not `rectangular`.
    """
    return loss(scores, negatives, *positive_pairs(loss, negatives))


def positive_pairs(loss: nn.Module, negatives: Tensor) -> tuple[Tensor] | tuple[()]:
    """Give the last argument of a loss on a matrix in which text n belongs to image n // K.

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
            f"{type(loss).__name__} takes one caption a photo, "
            f"but captions_per_photo is {per_image}: set it to 1 or null"
        )
    text = torch.arange(texts, device=negatives.device)
    return (torch.stack([text // per_image, text], dim=1),)
