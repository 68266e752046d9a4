"""Searches of all items: the best by both stages' scores, as if every item were a candidate."""

from __future__ import annotations

from functools import partial
from typing import Literal

import numpy as np

from aladin_index.ann.exact_search import largest
from aladin_index.search.bounded import KnownScores, best_items, ranks_of
from aladin_index.search.candidates import (
    Found,
    QueryPool,
    Ranking,
    ValidSearch,
)
from aladin_index.search.collection import Collection, Everything
from aladin_index.search.deadline import OutOfTimeError, RerankDeadline
from aladin_index.search.options import SearchOptions
from aladin_index.search.rerank import RankedPage, rank_by_match
from aladin_network.errors import EngineUnavailableError, InputError

# Largest collection: the bounds of a million photos take a quarter of a second for each query, and
# half a minute to be computed.
MAX_ITEMS = 300_000


def takes_all(options: SearchOptions, collection: Collection) -> bool:
    """Whether a search that asks for all items, or whose index does, may compare with all of them.

    Args:
        options: Options of the search.
        collection: The searched collection.

    Raises:
        InputError: If the search itself asks for all and the collection is larger than `MAX_ITEMS`;
            an index that has grown beyond it is searched among candidates.
    """
    if options.candidates == "exhaustive" and collection.count > MAX_ITEMS:
        raise InputError(
            f"candidates: expected a number, got all, which takes an index of at most "
            f"{MAX_ITEMS:,} items; this one has {collection.count:,}"
        )
    return collection.count <= MAX_ITEMS


def rank_everything(search: ValidSearch, clock: RerankDeadline) -> tuple[Found, RankedPage]:
    """Find the page's hits among all items.

    The order is that of re-ranking all items: by the fused score, of equal ones by the cosine, then
    by row. An item is scored if its bound allows it to be on the page or before it.

    Args:
        search: The search, whose second stage decides the order.
        clock: Stops the scoring at the search's deadline.

    Raises:
        InputError: If the index is in a vector database.
    """
    options, second_stage = search.options, search.second_stage
    assert second_stage is not None
    every = search.collection.everything(search.embedding, second_stage)
    if search.own_rows:
        others = ~np.isin(every.rows, search.own_rows)
        every = Everything(every.rows[others], every.match[others], every.upper[others])
    count = len(every.rows)
    first, last = (min(each, count) for each in (options.offset, options.offset + options.k))
    pool_size = search.pool_size
    in_pool = largest(every.match, pool_size) if pool_size else np.empty(0, dtype=np.int64)
    pool = QueryPool(every.rows[in_pool], every.match[in_pool], heads_ranking=False)
    degraded: Literal["rerank_timeout", "rerank_unavailable"]
    try:
        # How many items will be scored is not known: the deadline is checked between blocks.
        align = partial(search.collection.align, search.tokens, search.modality)
        score = clock.guard(align, search.direction, 0, search.deadline_s)
        known = KnownScores(every.rows, score)
        # As among candidates, items of equal score are in the order of their cosines.
        best = best_items(search, every, known, -every.match, slice(first, last), all_ranks=False)
        ranking = Ranking(
            rows=every.rows[best.places],
            scores=best.fused,
            match=every.match[best.places],
            match_ranks=ranks_of(every.match, best.places),
            align=best.align,
            align_ranks=best.align_ranks,
        )
        pool_align = known.scores(in_pool) if len(in_pool) else None
        page = RankedPage(ranking, True, pool_align)
    except OutOfTimeError:
        degraded = "rerank_timeout"
        page = _by_match(every, first, last, degraded)
    except EngineUnavailableError:
        degraded = "rerank_unavailable"
        page = _by_match(every, first, last, degraded)
    ranking = page.ranking
    found = Found(
        rows=ranking.rows,
        match=ranking.match,
        start=first,
        page=slice(0, last - first),
        pool=pool,
        candidates=count,
        is_empty=count == 0,
    )
    return found, page


def _by_match(
    every: Everything,
    first: int,
    last: int,
    degraded: Literal["rerank_timeout", "rerank_unavailable"],
) -> RankedPage:
    """Return the page in the order of the cosines."""
    places = largest(every.match, last)[first:]
    ranking = rank_by_match(every.rows[places], every.match[places], first + 1, None)
    return RankedPage(ranking, degraded=degraded)
