"""Deep boosting learning: a target branch that should outdo its anchors (DBL)."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from aladin.scoring import ScoreName
from training.tasks.base import PairTask
from training.tasks.ranking import positive_pairs
from training.tasks.scores import BatchScores


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
