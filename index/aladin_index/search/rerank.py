"""The second stage of a search: orders candidates and scores the pool, if time allows; `sort`."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from typing import Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from aladin_index.items.filters import field_scalars
from aladin_index.search.bounded import KnownScores, best_items
from aladin_index.search.candidates import (
    AlignScorer,
    Found,
    Ranking,
    ValidSearch,
    sharing,
    unknown_fields,
)
from aladin_index.search.collection import Everything, SearchBackend
from aladin_index.search.deadline import OutOfTimeError, RerankDeadline
from aladin_index.search.file_collection import FileCollection
from aladin_index.search.parts import PartScores, score_parts
from aladin_index.search.results import SearchAnswer
from aladin_network.errors import EngineUnavailableError
from aladin_network.scoring.fusion import DirectionFusion
from aladin_network.types import Modality


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
    align: NDArray[np.float32],
    fusion: DirectionFusion,
    weight: float,
    block: int,
    page: slice = slice(None),
) -> Ranking:
    """Order rows by the fusion of both stages' scores, `block` by `block`.

    Rows with equal scores keep their order.

    Args:
        rows: At least one row, best first.
        match: Cosines of the rows.
        first_rank: Rank of the first row, counted from 1.
        align: Alignment scores of the rows.
        fusion: Constants of this direction.
        weight: Weight of the alignment score; 1 orders by it alone.
        block: Rows in a block, at least 1.
        page: Places, in their order, of the rows to return.
    """
    ranks = np.arange(first_rank, first_rank + len(rows), dtype=np.int64)
    blocks = (ranks - first_rank) // block
    fused, order = align, np.lexsort((-align, blocks))  # stable; the last key decides first
    align_ranks = np.empty_like(ranks)
    align_ranks[order] = ranks
    if weight != 1:
        fused = fusion.combine(align, match, weight)
        order = np.lexsort((-fused, blocks))
    return Ranking(rows, fused, match, ranks, align, align_ranks).take(order[page])


class RankedPage(NamedTuple):
    """The hits of a page in their order.

    Attributes:
        ranking: The page.
        reranked: Whether the second stage decided the order.
        pool_align: Alignment scores of the pool, or None if the second stage did not score it.
        degraded: Why the second stage is missing, or None.
        parts: Scores of each part of a query of several, in the order of the page.
    """

    ranking: Ranking
    reranked: bool = False
    pool_align: NDArray[np.float32] | None = None
    degraded: Literal["rerank", "rerank_timeout", "rerank_unavailable"] | None = None
    parts: Sequence[PartScores] = ()


def rerank(
    searches: Sequence[ValidSearch], found: Sequence[Found], clock: RerankDeadline
) -> list[RankedPage]:
    """Order the candidates and score the pools; without a second stage, keep the order.

    Args:
        searches: The searches; the candidates of those that share a collection are scored in one
            call, except where a deadline or bounds may leave some of them out.
        found: Result of the first stage of each.
        clock: Estimates how long the second stage takes.
    """
    scores: dict[int, NDArray[np.float32]] = {}
    for group in sharing(searches):
        collection = searches[group[0]].collection
        if not isinstance(collection, FileCollection):
            continue
        together: dict[Modality, list[int]] = {}
        for place in group:
            search, of_search = searches[place], found[place]
            is_plain = search.deadline_s is None and of_search.upper is None and not search.parts
            if search.reranks and is_plain:
                together.setdefault(search.modality, []).append(place)
        for modality, places in together.items():
            began = time.perf_counter()
            tokens = [searches[place].tokens for place in places]
            rows = [found[place].rows for place in places]
            aligned = collection.align_all(tokens, modality, rows)
            scores.update(zip(places, aligned, strict=True))
            count = sum(map(len, rows))
            if count:
                direction = searches[places[0]].direction
                clock.observe(direction, count, time.perf_counter() - began)
    return [
        _rank_by_parts(search, of_search, clock)
        if search.parts
        else _rerank(search, of_search, scores.get(place), clock)
        for place, (search, of_search) in enumerate(zip(searches, found, strict=True))
    ]


def _rerank(
    search: ValidSearch,
    found: Found,
    scores: NDArray[np.float32] | None,
    clock: RerankDeadline,
) -> RankedPage:
    """Order the candidates of one search.

    Args:
        search: See `rerank`.
        found: See `rerank`.
        scores: Alignment scores of the candidates, if they have been computed.
        clock: See `rerank`.
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
            pool_align = _score_pool(search, found, align, clock)
            return RankedPage(ranking, search.reranks, pool_align)
        began, score, aligned = time.perf_counter(), align, scores
        scored = len(found.rows) + (0 if found.pool.heads_ranking else len(found.pool.rows))
        if aligned is None:
            score = clock.guard(align, search.direction, scored, search.deadline_s)
            if found.upper is not None and len(found.rows) <= found.candidates:
                page = _rank_by_bounds(search, found, found.upper, score)
                clock.observe(search.direction, scored, time.perf_counter() - began)
                return page
            aligned = score(found.rows)
        ranking = rank_in_blocks(
            found.rows,
            found.match,
            found.start + 1,
            aligned,
            search.fusion,
            search.weight,
            found.candidates,
            found.page,
        )
        pool_align = found.pool.align(aligned, score) if len(found.pool.rows) else None
        if scores is None:
            clock.observe(search.direction, scored, time.perf_counter() - began)
        return RankedPage(ranking, True, pool_align)
    except OutOfTimeError:
        degraded = "rerank_timeout"
    except EngineUnavailableError:
        degraded = "rerank_unavailable"
    return RankedPage(rank_by_match(rows, match, first_rank, None), degraded=degraded)


def _rank_by_parts(search: ValidSearch, found: Found, clock: RerankDeadline) -> RankedPage:
    """Order the candidates of a query of several parts by the sum of the parts' scores."""
    scored = score_parts(search, found, clock)
    places = np.arange(len(found.rows), dtype=np.int64)
    order = np.lexsort((-scored.total, places // max(found.candidates, 1)))[found.page]
    ranking = Ranking(found.rows, scored.total, found.match, found.start + 1 + places)
    parts = [each.take(order) for each in scored.parts]
    return RankedPage(ranking.take(order), scored.reranked, None, scored.degraded, parts)


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
    return RankedPage(ranking, True, pool.align(None, score))


def _score_pool(
    search: ValidSearch, found: Found, align: AlignScorer, clock: RerankDeadline
) -> NDArray[np.float32] | None:
    """Return the scores of the pool, or None if there is no time for them."""
    pool = found.pool
    try:
        score = clock.guard(align, search.direction, len(pool.rows), search.deadline_s)
        return pool.align(None, score)
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
