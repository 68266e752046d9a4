"""Train the embedding on its own ranking loss (ALADIN's variants T and T/ft)."""

from __future__ import annotations

from typing import ClassVar

from torch import Tensor

from training.tasks.base import PairScores, PairTask


class MatchingTask(PairTask):
    """A ranking loss on the cosines of the embeddings."""

    needs: ClassVar[frozenset[str]] = frozenset({"matching"})
    trains: ClassVar[frozenset[str]] = frozenset({"matching"})

    def forward(self, scores: PairScores, negatives: Tensor) -> Tensor:
        """Return the scalar loss of a batch."""
        return self.rank(scores.matching, negatives)
