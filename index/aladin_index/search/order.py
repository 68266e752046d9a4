"""The order of a search's hits: one sort by block, total and cosine, and its page."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from functools import partial
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from aladin_index.items.stacks import Stacks
from aladin_index.search.candidates import Candidates
from aladin_index.search.deadline import OutOfTimeError, RerankDeadline
from aladin_index.search.plan import Plan
from aladin_index.search.score import Degraded, Scored, TermScores
from aladin_network.errors import EngineUnavailableError

# Ranks of so few among so many scores are counted one by one; otherwise all scores are sorted.
_COUNTED, _SORTED = 20, 2000


class Ranking(NamedTuple):
    """Rows in the order of an answer, with the scores and ranks of both stages.

    Attributes:
        rows: (hits,) int64.
        scores: (hits,) scores that decide the order.
        match: (hits,) cosines of the embeddings.
        match_ranks: (hits,) ranks by `match`, counted from 1.
        align: (hits,) alignment scores, or None between items of one modality.
        align_ranks: (hits,) ranks by `align`, counted from 1, or None as `align`.
    """

    rows: NDArray[np.int64]
    scores: NDArray[np.float32]
    match: NDArray[np.float32]
    match_ranks: NDArray[np.int64]
    align: NDArray[np.float32] | None = None
    align_ranks: NDArray[np.int64] | None = None

    def take(self, places: NDArray[np.int64] | slice) -> Ranking:
        """Return the rows at some places."""
        return Ranking(*(None if part is None else part[places] for part in self))  # pyright: ignore[reportArgumentType]


class Tiles(NamedTuple):
    """The hits of a page among the first items: the first one of each stack.

    Attributes:
        places: (hits,) int64, their places in the order of these items.
        members: For the row of a hit that stands for several those of its stack, best first.
        is_short: Whether hits are missing, which further items have.
    """

    places: NDArray[np.int64]
    members: Mapping[int, Sequence[int]]
    is_short: bool


_NO_TILES = Tiles(np.empty(0, dtype=np.int64), {}, is_short=False)


class RankedPage(NamedTuple):
    """The hits of a page in their order.

    Attributes:
        ranking: The page.
        reranked: Whether the second stage decided the order.
        pool_align: Alignment scores of the pool, or None if the second stage did not score it.
        degraded: Why the second stage is missing, or None.
        terms: Scores of each of joined terms, in the order of the page.
        tiles: How the page was chosen where photos are stacked.
    """

    ranking: Ranking
    reranked: bool = False
    pool_align: NDArray[np.float32] | None = None
    degraded: Degraded | None = None
    terms: Sequence[TermScores] = ()
    tiles: Tiles = _NO_TILES


def rank(plan: Plan, found: Candidates, scored: Scored, clock: RerankDeadline) -> RankedPage:
    """Order the scored candidates, and cut out the page.

    Where the second stage does not decide the order, it scores the hits of the page and the pool
    nevertheless, if it can: this is shown, and hits are judged by it.
    """
    # Scored ones alone are always of one block.
    places, match, blocks = scored.places, found.items.match, found.blocks
    if places is not None:
        match = match[places]
    best = ordered_page(scored.total, match, blocks, found.page)
    tiles = _NO_TILES
    if plan.stacks is not None:
        tiles = _stacked(plan, plan.stacks, found, best if places is None else places[best])
        best = best[tiles.places]
    among_all = best if places is None else places[best]
    if found.are_nearest:
        match_ranks = among_all + (found.start + 1)
    elif found.items.nearer is not None:
        match_ranks = 1 + found.items.nearer(among_all)
    else:
        match_ranks = found.start + ranks_at(among_all, found.items.match)
    ranking = Ranking(
        rows=found.items.rows[among_all],
        scores=scored.total[best],
        match=match[best],
        match_ranks=match_ranks,
    )
    terms = [each.take(best) for each in scored.terms]
    if scored.align is not None:
        if scored.total is scored.align:
            at = np.arange(len(best)) if plan.stacks is None else tiles.places
            align_ranks = found.start + found.page.start + 1 + at
        else:
            align_ranks = found.start + ranks_at(best, scored.align, blocks)
        ranking = ranking._replace(align=scored.align[best], align_ranks=align_ranks)
    elif not plan.reranks and plan.terms[0].aligns:
        return _with_alignment(plan, found, RankedPage(ranking, tiles=tiles), clock)
    reranked = scored.align is not None or any(each.align is not None for each in terms)
    return RankedPage(ranking, reranked, scored.pool_align, scored.degraded, terms, tiles)


def _stacked(plan: Plan, stacks: Stacks, found: Candidates, ordered: NDArray[np.int64]) -> Tiles:
    """Choose the hits of a page among the first items, whose places are given in their order."""
    start, k = plan.options.offset, plan.options.k
    rows = found.items.rows[ordered]
    firsts = stacks.firsts(rows)[start : start + k]
    order = {row: place for place, row in enumerate(rows.tolist())}
    members: dict[int, list[int]] = {}
    for row in rows[firsts].tolist():
        of_row = [each for each in stacks.of(row) if each not in plan.own_rows]
        if len(of_row) > 1:
            members[row] = sorted(of_row, key=lambda each: order.get(each, len(order)))
    are_more = len(ordered) == plan.page.stop
    return Tiles(firsts, members, is_short=are_more and len(firsts) < k)


def _with_alignment(
    plan: Plan, found: Candidates, page: RankedPage, clock: RerankDeadline
) -> RankedPage:
    """Align the hits of a page, whose order is that of the cosines, and the pool if time allows."""
    stage, ranking = plan.terms[0].stage, page.ranking
    align = partial(plan.collection.align, stage.tokens, stage.modality)
    pool, pool_align = found.pool.rows, None
    try:
        scores = align(ranking.rows)
        with suppress(OutOfTimeError):
            pool_align = clock.guard(align, plan.direction, len(pool), plan.deadline_s)(pool)
    except EngineUnavailableError:
        return page._replace(degraded="rerank_unavailable")
    everywhere = np.arange(len(scores), dtype=np.int64)
    ranks = found.start + ranks_at(everywhere, scores)
    aligned = ranking._replace(align=scores, align_ranks=ranks)
    return page._replace(ranking=aligned, pool_align=pool_align)


def ordered_page(
    total: NDArray[np.float32],
    match: NDArray[np.float32],
    blocks: NDArray[np.int64] | None,
    page: slice,
) -> NDArray[np.int64]:
    """Return the places of a page's hits, best first.

    Blocks follow each other; in a block the total decides, and of equal totals the cosine, and then
    the place.
    """
    keys = (-match, -total) if blocks is None else (-match, -total, blocks)
    return np.lexsort(keys)[page]


def ranks_at(
    places: NDArray[np.int64],
    scores: NDArray[np.float32],
    blocks: NDArray[np.int64] | None = None,
) -> NDArray[np.int64]:
    """Return the ranks of some places by score, block after block, counted from 1.

    Equal scores rank in the order of their places.
    """
    if len(scores) > _SORTED and len(places) <= _COUNTED and blocks is None:
        above = [
            1 + np.count_nonzero(scores > scores[n]) + np.count_nonzero(scores[:n] == scores[n])
            for n in places.tolist()
        ]
        return np.array(above, dtype=np.int64)
    ranks = np.empty(len(scores), dtype=np.int64)
    keys = (-scores,) if blocks is None else (-scores, blocks)
    ranks[np.lexsort(keys)] = np.arange(1, len(scores) + 1)
    return ranks[places]
