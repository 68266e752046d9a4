"""One scale for the scores of two models.

Each model scores the same sample of items for each query. How many standard deviations a hit is
above the mean of its own model's scores of the sample is comparable between the models.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from aladin_index.search.candidates import ValidSearch
from aladin_index.tokens.maxsim import alignment_with_candidates
from aladin_index.upgrade.sample import ItemVectors

# Items of the sample that every query is compared with: as much as the second stage of a search.
SCALE_ITEMS = 256
_LEAST_DEVIATION = 1e-6


class Scale(NamedTuple):
    """Mean and standard deviation of a query's scores of the sample."""

    mean: float
    deviation: float

    def of(self, scores: NDArray[np.float32]) -> NDArray[np.float32]:
        """Bring scores of the same query to the common scale."""
        return ((scores - self.mean) / self.deviation).astype(np.float32)


@dataclass(frozen=True, eq=False)
class ScaleItems:
    """The sample, as one of the models has encoded it."""

    vectors: ItemVectors

    def scale(self, search: ValidSearch, *, reranked: bool) -> Scale:
        """Score the sample as a search scores its hits.

        Args:
            search: Search by the model of these encodings.
            reranked: Whether its hits are ordered by the fusion of both stages' scores.
        """
        vectors, query = self.vectors, search.query.encoding.embedding[0]
        scores = vectors.embeddings @ query
        words = len(search.tokens) if search.modality == "text" else 1
        corrects = vectors.biases is not None and search.is_crossing
        if vectors.biases is not None and corrects:
            scores = scores - vectors.biases[:, 0]
        if reranked:
            rows = np.arange(len(scores), dtype=np.int64)
            align = alignment_with_candidates(search.tokens, search.modality, vectors.tokens, rows)
            if vectors.biases is not None and corrects:
                align = align - words * vectors.biases[:, 1]
            scores = search.fusion.combine(align, scores, search.weight)
        deviation = max(float(scores.std()), _LEAST_DEVIATION)
        return Scale(float(scores.mean()), deviation)
