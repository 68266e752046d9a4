"""Train a score to rank as a teacher does (ALADIN eqs 5-7)."""

from __future__ import annotations

from typing import ClassVar

from torch import Tensor

from training.tasks.base import PairScores, PairTask


class DistillationTask(PairTask):
    """ListNet from the teacher's scores to the embeddings' cosines; no gradient to the former.

    In the paper the teacher is the alignment head of the same network.
    """

    needs: ClassVar[frozenset[str]] = frozenset({"teacher", "matching"})
    trains: ClassVar[frozenset[str]] = frozenset({"matching"})

    def forward(self, scores: PairScores, negatives: Tensor) -> Tensor:  # noqa: ARG002
        """Return the scalar loss of a batch; every pair counts, so no negatives are needed."""
        return self.loss(scores.matching, scores.teacher)


class AlignmentDistillationTask(PairTask):
    """ListNet from another network's scores to the alignment scores.

    Not of the paper: a network taught by its trained predecessor learns from how similar the
    negatives are, too, which the captions of few photos do not say.
    """

    needs: ClassVar[frozenset[str]] = frozenset({"teacher", "alignment"})
    trains: ClassVar[frozenset[str]] = frozenset({"alignment"})

    def forward(self, scores: PairScores, negatives: Tensor) -> Tensor:  # noqa: ARG002
        """Return the scalar loss of a batch; every pair counts, so no negatives are needed."""
        return self.loss(scores.alignment, scores.teacher)
