"""Training against negatives that were mined from the whole split (AOQ)."""

from __future__ import annotations

from torch import Tensor, nn

from aladin.scoring import ScoreName
from training.losses.offline_quintuplet import OfflineQuintupletLoss
from training.tasks.base import PairTask
from training.tasks.scores import BatchScores


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
