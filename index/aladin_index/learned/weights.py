"""Weights of the embedding and of the learned part in the vectors of the first stage."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from aladin_network.errors import ConfigError
from aladin_network.scoring.fusion import DirectionFusion


@dataclass(frozen=True, kw_only=True)
class Weights:
    """Weights of both parts, such that unweighted queries have the fused scores.

    Attributes:
        match: Weight of the embedding; 0 leaves it out.
        align: Weight of the learned part.
        fusion: Weight of the alignment in the fusion that they are of.
    """

    match: float
    align: float
    fusion: float

    @classmethod
    def of(cls, fusion: DirectionFusion) -> Weights:
        """Return the weights of a fusion.

        Raises:
            ConfigError: If the alignment has no part in it.
        """
        if fusion.weight == 0:
            raise ConfigError(
                "the model's fusion gives the alignment no weight, so that there is nothing to fit "
                "the first stage to"
            )
        if fusion.weight == 1:
            return cls(match=0.0, align=1.0, fusion=1.0)
        match = (1 - fusion.weight) / fusion.match_std
        return cls(match=match, align=fusion.weight / fusion.align_std, fusion=fusion.weight)

    def items(
        self, embeddings: NDArray[np.float32], learned: NDArray[np.float32]
    ) -> NDArray[np.float32]:
        """Join the parts of items, (items, both)."""
        parts = [self.align * learned]
        if self.match:
            parts.insert(0, self.match * embeddings)
        return np.concatenate(parts, axis=1, dtype=np.float32)

    def query(
        self, embedding: NDArray[np.float32], learned: NDArray[np.float32], fusion: float
    ) -> NDArray[np.float32]:
        """Join the parts of queries, (..., both), for a weight of the alignment in the fusion."""
        parts = [learned * (fusion / self.fusion)]
        if self.match:
            parts.insert(0, embedding * ((1 - fusion) / (1 - self.fusion)))
        return np.concatenate(parts, axis=-1, dtype=np.float32)
