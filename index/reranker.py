"""The second stage of one search: it orders the candidates and scores the pool, if it can."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from aladin.errors import EngineUnavailableError
from aladin.fusion import Direction, DirectionFusion
from index.probability import QueryPool
from index.ranking import AlignScorer, Ranking, rank_by_match, rank_in_blocks
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


class RankedPage(NamedTuple):
    """A page, and what the second stage says of it.

    Attributes:
        ranking: of the page.
        pool_align: alignment scores of the pool; None: the second stage could not be asked.
        degraded: why the first stage alone made the page, where the second was to have a say.
    """

    ranking: Ranking
    pool_align: NDArray[np.float32] | None = None
    degraded: Literal["rerank_timeout", "rerank_unavailable"] | None = None


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

    def rerank(self, found: Found, page: slice) -> RankedPage:
        """Order whole blocks of candidates and score the pool; else leave the order as it is.

        Args:
            found: at least one block.
            page: places of the hits in it.
        """
        try:
            ranking, pool_align = self._rerank(found)
            return RankedPage(ranking.take(page), pool_align)
        except OutOfTimeError:
            degraded = "rerank_timeout"
        except EngineUnavailableError:
            degraded = "rerank_unavailable"
        first_rank = found.start + page.start + 1
        ranking = rank_by_match(found.rows[page], found.match[page], first_rank, None)
        return RankedPage(ranking, degraded=degraded)

    def score(self, found: Found) -> RankedPage:
        """Leave the order as it is, and score the hits and the pool for information."""
        first_rank = found.start + 1
        try:
            ranking = rank_by_match(found.rows, found.match, first_rank, self.align)
            return RankedPage(ranking, self._score_pool(found.pool, ranking))
        except EngineUnavailableError:
            ranking = rank_by_match(found.rows, found.match, first_rank, None)
            return RankedPage(ranking, degraded="rerank_unavailable")

    def _rerank(self, found: Found) -> tuple[Ranking, NDArray[np.float32]]:
        began = time.perf_counter()
        scored = len(found.rows) + found.pool.unranked
        score = self.clock.guard(self.align, self.direction, scored, self.deadline_s)
        ranking = rank_in_blocks(
            found.rows, found.match, found.start + 1, score, self.fusion, self.weight, self.block
        )
        pool_align = found.pool.align(ranking, score)
        self.clock.observe(self.direction, scored, time.perf_counter() - began)
        return ranking, pool_align

    def _score_pool(self, pool: QueryPool, ranking: Ranking) -> NDArray[np.float32] | None:
        """Return the scores; None where even this is too late."""
        try:
            score = self.clock.guard(self.align, self.direction, len(pool.rows), self.deadline_s)
            return pool.align(ranking, score)
        except OutOfTimeError:
            return None
