"""Train a score to rank as a teacher does (ALADIN eqs 5-7)."""

from __future__ import annotations

from torch import Tensor, nn

from aladin.scoring import ScoreName
from training.tasks.base import PairTask
from training.tasks.scores import BatchScores


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
