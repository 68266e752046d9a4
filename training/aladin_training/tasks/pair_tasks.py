"""The contract between a network's scores of a batch and a loss.

A ranking loss on one of the network's scores.

Deep boosting learning: a target branch that should outdo its anchors (DBL).

Training against negatives that were mined from the whole split (AOQ).

Train a score to rank as a teacher does (ALADIN eqs 5-7).

A constraint on how embeddings of one modality lie to each other (IMC).

Train the embeddings of one photo's captions to find each other.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from aladin_network.errors import ConfigError
from aladin_network.types import ScoreName
from aladin_training.losses.offline_quintuplet import OfflineQuintupletLoss
from aladin_training.tasks.scores import BatchScores


class PairTask(nn.Module):
    """One term of a stage's loss; owns its loss, and so the loss's trained parameters."""

    def __init__(self, loss: nn.Module) -> None:
        super().__init__()
        self.loss = loss

    def forward(self, scores: BatchScores) -> Tensor:
        """Return the scalar loss of a batch."""
        raise NotImplementedError


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


class BoostingTask(PairTask):
    """A boosting loss against each anchor's score, averaged over the anchors.

    A branch without anchors, the first one of the online scenario, has none: the loss is 0.
    """

    def __init__(self, loss: nn.Module, score: ScoreName) -> None:
        super().__init__(loss)
        self.score: ScoreName = score

    def forward(self, scores: BatchScores) -> Tensor:
        """Return the scalar loss of a batch."""
        target = scores.of(self.score)
        if not scores.anchors:
            return target.new_zeros(())
        pairs = positive_pairs(self.loss, scores.negatives)
        losses = [
            self.loss(target, anchor.of(self.score).detach(), scores.negatives, *pairs)
            for anchor in scores.anchors
        ]
        return torch.stack(losses).mean()


class QuintupletTask(PairTask):
    """The adaptive offline quintuplet loss and its simpler forms (AOQ eqs 3 to 5)."""

    def __init__(self, loss: nn.Module, score: ScoreName) -> None:
        super().__init__(loss)
        assert isinstance(loss, OfflineQuintupletLoss)
        self.score: ScoreName = score
        # Eq 3 has no cross terms: two of the six batches need not be encoded.
        self._cross = loss.form != "triplet"

    def forward(self, scores: BatchScores) -> Tensor:
        """Return the scalar loss of a batch."""
        offline = scores.offline(self.score, cross=self._cross)
        return self.loss(scores.of(self.score), offline, scores.negatives)


class DistillationTask(PairTask):
    """ListNet from the teacher's scores to one of the network's; every pair of a batch counts.

    In the paper the teacher is the alignment head of the same network and the matching learns
    from it. Not of the paper: an alignment that learns from an earlier network, whose scores
    say how similar the negatives are, too, which the captions of few photos do not.
    """

    def __init__(self, loss: nn.Module, score: ScoreName) -> None:
        super().__init__(loss)
        self.score: ScoreName = score

    def forward(self, scores: BatchScores) -> Tensor:
        """Return the scalar loss of a batch; no gradient reaches the teacher's scores."""
        return self.loss(scores.of(self.score), scores.teacher())


class IntraModalTask(PairTask):
    """The intra-modal constraint on the photos' embeddings plus that on the captions'.

    It goes beside a ranking task on the matching (IMC eq 3).
    """

    def forward(self, scores: BatchScores) -> Tensor:
        """Return the scalar loss of a batch."""
        images, texts = scores.embeddings()
        # In float32: bfloat16's steps near 1 are too wide for bounds such as 0.95.
        with torch.autocast(images.device.type, enabled=False):
            return self.loss(images) + self.loss(texts)


class CaptionTask(PairTask):
    """A ranking loss between the first and the second caption of each photo of a batch.

    Not of the papers: with few photos, captions that say the same in other words teach the
    text tower what one caption a photo cannot.
    """

    def forward(self, scores: BatchScores) -> Tensor:
        """Return the scalar loss of a batch.

        Raises:
            ConfigError: the stage shows one caption of each photo only.
        """
        negatives = scores.negatives
        per_photo = negatives.shape[1] // negatives.shape[0]
        if per_photo < 2:
            raise ConfigError("task captions needs captions_per_photo of at least 2")
        return self.loss(scores.captions()[0::per_photo, 1::per_photo], negatives[:, 0::per_photo])
