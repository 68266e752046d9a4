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
        corrected: Whether items have the biases of a hubness correction, see
            `aladin_index.ann.corrected`; that of the alignment joins the learned part.
    """

    match: float
    align: float
    fusion: float
    corrected: bool = False

    @classmethod
    def of(cls, fusion: DirectionFusion, *, corrected: bool = False) -> Weights:
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
            return cls(match=0.0, align=1.0, fusion=1.0, corrected=corrected)
        match = (1 - fusion.weight) / fusion.match_std
        align = fusion.weight / fusion.align_std
        return cls(match=match, align=align, fusion=fusion.weight, corrected=corrected)

    def items(
        self, vectors: NDArray[np.float32], learned: NDArray[np.float32]
    ) -> NDArray[np.float32]:
        """Join the parts of items, (items, both).

        Args:
            vectors: Embeddings, with biases if there are any.
            learned: What is fitted to the alignment.
        """
        if self.corrected:
            learned = np.concatenate([learned, vectors[:, -1:]], axis=1)
            vectors = vectors[:, :-1]
        parts = [self.align * learned]
        if self.match:
            parts.insert(0, self.match * vectors)
        return np.concatenate(parts, axis=1, dtype=np.float32)

    def query(
        self,
        vector: NDArray[np.float32],
        learned: NDArray[np.float32],
        fusion: float,
        words: NDArray[np.int64],
    ) -> NDArray[np.float32]:
        """Join the parts of queries, (..., both).

        Args:
            vector: Vectors of queries, see `aladin_index.ann.corrected.query_vectors`.
            learned: What their words make of the fit.
            fusion: Weight of the alignment in the fusion.
            words: (...) number of words of each query.
        """
        if self.corrected:
            learned = np.concatenate([learned, words[..., None]], axis=-1, dtype=np.float32)
            vector = vector[..., :-1]
        parts = [learned * (fusion / self.fusion)]
        if self.match:
            parts.insert(0, vector * ((1 - fusion) / (1 - self.fusion)))
        return np.concatenate(parts, axis=-1, dtype=np.float32)
