"""The second stage of a search: orders candidates and scores the pool, if time allows; `sort`."""

from __future__ import annotations

import threading
import time
from bisect import bisect_left, insort
from dataclasses import replace
from functools import partial
from typing import Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from aladin_index.items.filters import field_scalars
from aladin_index.search.backend import Everything, SearchBackend
from aladin_index.search.bounded import KnownScores, best_items
from aladin_index.search.candidates import AlignScorer, Found, Ranking, ValidSearch, unknown_fields
from aladin_index.search.results import SearchAnswer
from aladin_network.errors import EngineUnavailableError
from aladin_network.scoring.fusion import DirectionFusion
from aladin_network.types import Direction

# Weight of the newest measurement in an average: a change of the machine's load takes effect after
# about five measurements, a single slow one does not.
_NEWEST = 0.2

# Candidates that are scored between two checks of the deadline: the native kernel takes one
# millisecond for them.
_ROWS_A_CHECK = 1024

# A measurement of this age is ignored even if no time would remain: if every query has a deadline,
# a machine that was slow for a minute would otherwise never re-rank again.
_RETRY_S = 10.0


class TimesBySize:
    """Average seconds for each size of work seen so far; thread-safe.

    A table instead of a fitted line: it keeps the time of large pieces of work while only small
    ones come, so the first large one after a quiet hour is estimated correctly.
    """

    def __init__(self) -> None:
        """Start without measurements."""
        self._seconds: dict[int, float] = {}
        self._sizes: list[int] = []  # sizes seen, ascending
        self._lock = threading.Lock()

    def observe(self, size: int, seconds: float) -> None:
        """Update the average with a measurement.

        Args:
            size: Size of the work, at least 1; there should be few different sizes.
            seconds: Duration of the work.
        """
        with self._lock:
            known = self._seconds.get(size)
            if known is None:
                self._seconds[size] = seconds
                insort(self._sizes, size)
            else:
                self._seconds[size] = known + _NEWEST * (seconds - known)

    def expect(self, size: int) -> float:
        """Return the expected seconds for work of this size; 0.0 without measurements.

        Times between two known sizes are interpolated. Outside of them, a unit costs what it costs
        at the nearest size: rather too much for a larger size, too little for a smaller one. A
        unit never costs more than at the nearest smaller size; otherwise one slow measurement of
        a large size would keep such sizes from ever being tried again.

        Args:
            size: Size of the work, 0 or more.
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


class OutOfTimeError(Exception):
    """The second stage ran out of time; the searcher handles it."""


class RerankDeadline:
    """Estimates the duration of the second stage, and stops it at its deadline.

    Safe to use from any number of threads.
    """

    def __init__(self) -> None:
        """Start without measurements: the first query runs until its deadline."""
        self._times: dict[Direction, TimesBySize] = {
            "text_to_image": TimesBySize(),
            "image_to_text": TimesBySize(),
        }
        self._learnt_s: dict[Direction, float] = {}

    def guard(
        self, align: AlignScorer, direction: Direction, candidates: int, deadline_s: float | None
    ) -> AlignScorer:
        """Return a scorer with the same scores that stops at a deadline.

        Args:
            align: Scores rows.
            direction: Direction of the search.
            candidates: Number of candidates to be scored in all.
            deadline_s: Time by `time.monotonic` after which the scorer raises `OutOfTimeError`, or
                None for no deadline.

        Raises:
            OutOfTimeError: If the estimate exceeds the deadline; every few seconds one query is
                tried nevertheless.
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
            for start in range(0, len(rows), _ROWS_A_CHECK):
                if time.monotonic() > deadline_s:
                    raise OutOfTimeError
                part = slice(start, start + _ROWS_A_CHECK)
                scores[part] = align(rows[part])
            return scores

        return score

    def observe(self, direction: Direction, candidates: int, seconds: float) -> None:
        """Record the duration of a completed second stage.

        Args:
            direction: Direction of the search.
            candidates: Number of candidates scored, at least 1.
            seconds: Duration.
        """
        # A filter may leave any number of candidates: a few powers of two represent them all.
        size = 1 << (candidates - 1).bit_length()
        self._times[direction].observe(size, seconds * size / candidates)
        self._learnt_s[direction] = time.monotonic()


def rank_by_match(
    rows: NDArray[np.int64], match: NDArray[np.float32], first_rank: int, align: AlignScorer | None
) -> Ranking:
    """Keep the first stage's order.

    Args:
        rows: Rows, best first.
        match: Cosines of the rows.
        first_rank: Rank of the first row, counted from 1.
        align: Scores rows by the second stage, for information; None if there is none.
    """
    ranks = np.arange(first_rank, first_rank + len(rows), dtype=np.int64)
    if align is None:
        return Ranking(rows, match, match, ranks)
    scores = align(rows)
    align_ranks = np.empty_like(ranks)
    align_ranks[np.argsort(-scores, kind="stable")] = ranks
    return Ranking(rows, match, match, ranks, scores, align_ranks)


def rank_in_blocks(
    rows: NDArray[np.int64],
    match: NDArray[np.float32],
    first_rank: int,
    align: AlignScorer,
    fusion: DirectionFusion,
    weight: float,
    block: int,
) -> Ranking:
    """Order rows by the fusion of both stages' scores, `block` by `block`.

    Rows with equal scores keep their order.

    Args:
        rows: At least one row, best first.
        match: Cosines of the rows.
        first_rank: Rank of the first row, counted from 1.
        align: Scores rows by the second stage.
        fusion: Constants of this direction.
        weight: Weight of the alignment score; 1 orders by it alone.
        block: Rows in a block, at least 1.
    """
    scores = align(rows)
    fused = fusion.combine(scores, match, weight)
    ranks = np.arange(first_rank, first_rank + len(rows), dtype=np.int64)
    blocks = (ranks - first_rank) // block
    # Stable: the last key decides first.
    align_ranks = np.empty_like(ranks)
    align_ranks[np.lexsort((-scores, blocks))] = ranks
    order = np.lexsort((-fused, blocks))
    return Ranking(rows, fused, match, ranks, scores, align_ranks).take(order)


class RankedPage(NamedTuple):
    """The hits of a page in their order.

    Attributes:
        ranking: The page.
        reranked: Whether the second stage decided the order.
        pool_align: Alignment scores of the pool, or None if the second stage did not score it.
        degraded: Why the second stage is missing, or None.
    """

    ranking: Ranking
    reranked: bool = False
    pool_align: NDArray[np.float32] | None = None
    degraded: Literal["rerank", "rerank_timeout", "rerank_unavailable"] | None = None


def rerank(search: ValidSearch, found: Found, clock: RerankDeadline) -> RankedPage:
    """Order the candidates and score the pool; without a second stage, keep the order.

    Args:
        search: The search.
        found: Result of the first stage.
        clock: Estimates how long the second stage takes.
    """
    first_rank = found.start + found.page.start + 1
    rows, match = found.rows[found.page], found.match[found.page]
    if search.second_stage is None:
        is_missing = search.options.rerank and search.is_crossing and search.is_aligned
        ranking = rank_by_match(rows, match, first_rank, None)
        return RankedPage(ranking, degraded="rerank" if is_missing else None)
    align = partial(search.collection.align, search.tokens, search.modality)
    try:
        if not search.reranks or len(found.rows) == 0:
            ranking = rank_by_match(rows, match, first_rank, align)
            pool_align = _score_pool(search, found, ranking, align, clock)
            return RankedPage(ranking, search.reranks, pool_align)
        began = time.perf_counter()
        scored = len(found.rows) + (0 if found.pool.heads_ranking else len(found.pool.rows))
        score = clock.guard(align, search.direction, scored, search.deadline_s)
        if found.upper is not None and len(found.rows) <= found.candidates:
            page = _rank_by_bounds(search, found, found.upper, score)
            clock.observe(search.direction, scored, time.perf_counter() - began)
            return page
        ranking = rank_in_blocks(
            found.rows,
            found.match,
            found.start + 1,
            score,
            search.fusion,
            search.weight,
            found.candidates,
        )
        pool_align = found.pool.align(ranking, score)
        clock.observe(search.direction, scored, time.perf_counter() - began)
        return RankedPage(ranking.take(found.page), True, pool_align)
    except OutOfTimeError:
        degraded = "rerank_timeout"
    except EngineUnavailableError:
        degraded = "rerank_unavailable"
    return RankedPage(rank_by_match(rows, match, first_rank, None), degraded=degraded)


def _rank_by_bounds(
    search: ValidSearch, found: Found, upper: NDArray[np.float32], score: AlignScorer
) -> RankedPage:
    """Order one block of candidates, and score those that can be on the page, and the pool."""
    every = Everything(found.rows, found.match, upper)
    known = KnownScores(found.rows, score)
    places = np.arange(len(found.rows), dtype=np.int64)
    best = best_items(search, every, known, places, found.page, all_ranks=True)
    ranking = Ranking(
        rows=found.rows[best.places],
        scores=best.fused,
        match=found.match[best.places],
        match_ranks=found.start + 1 + best.places,
        align=best.align,
        align_ranks=found.start + best.align_ranks,
    )
    pool = found.pool
    if pool.heads_ranking:
        return RankedPage(ranking, True, known.scores(places[: len(pool.rows)]))
    return RankedPage(ranking, True, pool.align(ranking, score))


def _score_pool(
    search: ValidSearch, found: Found, ranking: Ranking, align: AlignScorer, clock: RerankDeadline
) -> NDArray[np.float32] | None:
    """Return the scores of the pool, or None if there is no time for them."""
    pool = found.pool
    try:
        score = clock.guard(align, search.direction, len(pool.rows), search.deadline_s)
        return pool.align(ranking, score)
    except OutOfTimeError:
        return None


def sort_hits(index: SearchBackend, search: ValidSearch, answer: SearchAnswer) -> SearchAnswer:
    """Order the hits by the field of `sort`, or name it if no item has a value there.

    Args:
        index: Searched index.
        search: Search with a field to sort by.
        answer: Its answer, best hits first.
    """
    options, unknown = search.options, answer.unknown_fields
    field = options.sort_field or ""
    if not any(any(field_scalars(hit.metadata.get(field))) for hit in answer.hits):
        unknown = [*unknown_fields(index, search, [field]), *unknown]
    return replace(answer, hits=options.in_order(answer.hits), unknown_fields=unknown)
