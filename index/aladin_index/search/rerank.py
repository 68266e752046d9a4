"""How long work of some size lately took, to tell how long the next will take.

Whether there is time for the second stage: an estimate before it, a look at the clock in it.

The second stage of one search: it orders the candidates and scores the pool, if it can.
"""

from __future__ import annotations

import threading
import time
from bisect import bisect_left, insort
from dataclasses import dataclass
from typing import Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from aladin_index.search.probability import QueryPool
from aladin_index.search.ranking import AlignScorer, Ranking, rank_by_match, rank_in_blocks
from aladin_network.errors import EngineUnavailableError
from aladin_network.scoring.fusion import DirectionFusion
from aladin_network.types import Direction

# Share of the newest measurement in an average: a change of the machine's load shows after some
# five measurements, a single slow one does not.
_NEWEST = 0.2


class TimesBySize:
    """Average seconds for each size that has been seen; safe to use from any number of threads.

    A table and not a fitted line: it does not forget what a large piece of work takes while only
    small ones come, so the first large one after a quiet hour is judged rightly.
    """

    def __init__(self) -> None:
        """Know nothing."""
        self._seconds: dict[int, float] = {}
        self._sizes: list[int] = []  # those seen, ascending
        self._lock = threading.Lock()

    def observe(self, size: int, seconds: float) -> None:
        """Learn from a measurement.

        Args:
            size: at least 1; there should be few different ones.
            seconds: that it took.
        """
        with self._lock:
            known = self._seconds.get(size)
            if known is None:
                self._seconds[size] = seconds
                insort(self._sizes, size)
            else:
                self._seconds[size] = known + _NEWEST * (seconds - known)

    def expect(self, size: int) -> float:
        """Return the seconds that work of some size will take; 0.0 while nothing is known.

        Between two sizes that were seen it is interpolated. Outside of them a unit costs what it
        costs at the nearest: rather too much for a larger size, too little for a smaller one. A
        unit never costs more than at the nearest smaller size: one slow measurement of a large
        size would else keep such sizes from ever being tried again.

        Args:
            size: 0 or more.
        """
        with self._lock:
            if not self._sizes:
                return 0.0
            place = bisect_left(self._sizes, size)
            if place == len(self._sizes):
                largest = self._sizes[-1]
                return self._seconds[largest] * size / largest
            above = self._sizes[place]
            if place == 0:
                return self._seconds[above] * size / above
            below = self._sizes[place - 1]
            share = (size - below) / (above - below)
            between = self._seconds[below] * (1 - share) + self._seconds[above] * share
            return min(between, self._seconds[below] * size / below)


# Candidates that are scored between two looks at the clock: the native kernel takes one
# millisecond for them.
_ROWS_A_LOOK = 1024

# What was learnt so long ago is tried once more, against all odds: where every query has a
# deadline, a machine that was slow for a minute would else never re-rank again.
_RETRY_S = 10.0


class OutOfTimeError(Exception):
    """The second stage was given up; it never leaves the searcher."""


class RerankDeadline:
    """Knows how long the second stage takes, and ends it where the time is up.

    Safe to use from any number of threads.
    """

    def __init__(self) -> None:
        """Know nothing: the first query tries, and looks at the clock."""
        self._times: dict[Direction, TimesBySize] = {
            "text_to_image": TimesBySize(),
            "image_to_text": TimesBySize(),
        }
        self._learnt_s: dict[Direction, float] = {}

    def guard(
        self, align: AlignScorer, direction: Direction, candidates: int, deadline_s: float | None
    ) -> AlignScorer:
        """Return a scorer that scores the same, as long as there is time.

        Args:
            align: scores rows.
            direction: of the query.
            candidates: that will be scored in all.
            deadline_s: by `time.monotonic`; after it the scorer raises an `OutOfTimeError`. None:
                it never does.

        Raises:
            OutOfTimeError: they will not be through by then, as far as one can tell; now and then
                one query may try nevertheless.
        """
        if deadline_s is None:
            return align
        now_s = time.monotonic()
        if now_s + self._times[direction].expect(candidates) > deadline_s:
            age_s = now_s - self._learnt_s.get(direction, now_s)
            if now_s > deadline_s or age_s < _RETRY_S:
                raise OutOfTimeError
            self._learnt_s[direction] = now_s

        def score(rows: NDArray[np.int64]) -> NDArray[np.float32]:
            scores = np.empty(len(rows), dtype=np.float32)
            for start in range(0, len(rows), _ROWS_A_LOOK):
                if time.monotonic() > deadline_s:
                    raise OutOfTimeError
                part = slice(start, start + _ROWS_A_LOOK)
                scores[part] = align(rows[part])
            return scores

        return score

    def observe(self, direction: Direction, candidates: int, seconds: float) -> None:
        """Learn how long a second stage took that ran to its end.

        Args:
            direction: of the query.
            candidates: that it scored, at least 1.
            seconds: that it took.
        """
        # A filter may leave any number of candidates: the few powers of two stand for them all.
        size = 1 << (candidates - 1).bit_length()
        self._times[direction].observe(size, seconds * size / candidates)
        self._learnt_s[direction] = time.monotonic()


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
