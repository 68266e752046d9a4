"""Train the embedding to rank as the alignment does (ALADIN eqs 5-7)."""

from __future__ import annotations

from typing import ClassVar

from torch import Tensor

from training.tasks.base import PairScores, PairTask


class DistillationTask(PairTask):
    """ListNet from the alignment scores to the embeddings' cosines; no gradient to the former."""

    needs: ClassVar[frozenset[str]] = frozenset({"alignment", "matching"})
    trains: ClassVar[frozenset[str]] = frozenset({"matching"})

    def forward(self, scores: PairScores, negatives: Tensor) -> Tensor:  # noqa: ARG002
        """Return the scalar loss of a batch; every pair counts, so no negatives are needed."""
        return self.loss(scores.matching, scores.alignment)
