"""How far an engine has to look to find what is nearest, measured with what is pushed to it."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from index.ann.calibration import Calibration, choose, is_saturated
from index.manifest import RecallPoint
from index.remote.client import EngineClient
from index.settings import Target

# Engines add cosines up in another order, and some in halves of the processor's registers.
_ROUNDING = 1e-6


class NearestSoFar:
    """The exact nearest items of some queries among all that passed by.

    Attributes:
        queries: (queries, dim) float32.
        count: number of nearest items.
    """

    def __init__(self, queries: NDArray[np.float32], count: int) -> None:
        """Begin with no item."""
        self.queries = queries
        self.count = count
        self._scores = np.empty((len(queries), 0), dtype=np.float32)

    def take(self, embeddings: NDArray[np.float32]) -> None:
        """Compare some more items, (items, dim)."""
        scores = np.concatenate([self._scores, self.queries @ embeddings.T], axis=1)
        beyond = scores.shape[1] - self.count
        if beyond > 0:
            scores = np.partition(scores, beyond, axis=1)[:, beyond:]
        self._scores = scores

    def calibrate(
        self, client: EngineClient, generation: int, target: Target, recall_wanted: float
    ) -> Calibration:
        """Choose how far searches look: no further than needed.

        Args:
            client: of the engine.
            generation: that has all items that passed by.
            target: the side.
            recall_wanted: share of the nearest items to find.
        """
        curve: list[RecallPoint] = []
        for width in client.first_stage(generation, target).widths or (None,):
            before = curve[-1].recall if curve else 0.0
            recall = self._recall(client, generation, target, width)
            curve.append(RecallPoint(search_width=width, oversample=1.0, recall=recall))
            if recall >= recall_wanted or is_saturated(before, recall):
                break
        return Calibration(choose(curve, recall_wanted), curve)

    def _recall(
        self, client: EngineClient, generation: int, target: Target, width: int | None
    ) -> float:
        """Return the share of the nearest items that an engine finds.

        An item that is as near as the last of them counts as one of them.
        """
        wanted = min(self.count, self._scores.shape[1])
        if wanted == 0 or len(self.queries) == 0:
            return 1.0
        found = 0
        for query, scores in zip(self.queries, self._scores, strict=True):
            hits = client.search(generation, target, query, wanted, None, width=width)
            least = scores.min() - _ROUNDING
            found += sum(hit.match >= least for hit in hits)
        return float(found / (wanted * len(self.queries)))
