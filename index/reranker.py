"""The second stage of one search: it orders the candidates and scores the pool, in time or not."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from aladin.fusion import Direction, DirectionFusion
from index.probability import QueryPool
from index.ranking import AlignScorer, Ranking, rank_in_blocks
from index.rerank_deadline import OutOfTimeError, RerankDeadline


class Found(NamedTuple):
    """What the first stage found for a page.

    Attributes:
        rows: (found,) int64, best first; of a search that re-ranks, whole blocks of candidates.
        match: (found,) float32, their cosines.
        start: place of the first.
        pool: that hits are judged against.
    """

    rows: NDArray[np.int64]
    match: NDArray[np.float32]
    start: int
    pool: QueryPool


@dataclass(frozen=True, kw_only=True)
class Reranker:
    """The second stage for one query.

    Attributes:
        align: scores rows.
        direction: of the query.
        fusion: constants of this direction.
        weight: of the alignment score.
        block: candidates that are ordered together.
        clock: knows how long all this takes.
        deadline_s: by `time.monotonic`; None: there is none.
    """

    align: AlignScorer
    direction: Direction
    fusion: DirectionFusion
    weight: float
    block: int
    clock: RerankDeadline
    deadline_s: float | None

    def rerank(self, found: Found) -> tuple[Ranking, NDArray[np.float32]]:
        """Order whole blocks of candidates, at least one; score the pool as well.

        Raises:
            OutOfTimeError: there is no time for it.
        """
        began = time.perf_counter()
        scored = len(found.rows) + found.pool.unranked
        score = self.clock.guard(self.align, self.direction, scored, self.deadline_s)
        ranking = rank_in_blocks(
            found.rows, found.match, found.start + 1, score, self.fusion, self.weight, self.block
        )
        pool_align = found.pool.align(ranking, score)
        self.clock.observe(self.direction, scored, time.perf_counter() - began)
        return ranking, pool_align

    def score_pool(self, pool: QueryPool, ranking: Ranking) -> NDArray[np.float32] | None:
        """Score the pool of a search that does not re-rank; None where even this is too late."""
        try:
            score = self.clock.guard(self.align, self.direction, len(pool.rows), self.deadline_s)
            return pool.align(ranking, score)
        except OutOfTimeError:
            return None
