"""Train the alignment score: the teacher (ALADIN eq 3)."""

from __future__ import annotations

from typing import ClassVar

from torch import Tensor

from training.tasks.base import PairScores, PairTask


class AlignmentTask(PairTask):
    """A ranking loss on the alignment scores; its gradient reaches all that is trained."""

    needs: ClassVar[frozenset[str]] = frozenset({"alignment"})
    trains: ClassVar[frozenset[str]] = frozenset({"alignment"})

    def forward(self, scores: PairScores, negatives: Tensor) -> Tensor:
        """Return the scalar loss of a batch."""
        return self.rank(scores.alignment, negatives)
