"""Searches of all items: the best by both stages' scores, as if every item were a candidate."""

from __future__ import annotations

import time
from typing import Literal

import numpy as np
import torch
from numpy.typing import NDArray

from aladin_index.ann.first_stage import largest
from aladin_index.search.backend import Collection, Everything
from aladin_index.search.candidates import (
    AlignScorer,
    Found,
    QueryPool,
    Ranking,
    ValidSearch,
    retrieve,
)
from aladin_index.search.options import SearchOptions
from aladin_index.search.rerank import (
    OutOfTimeError,
    RankedPage,
    RerankDeadline,
    rank_by_match,
    rerank,
)
from aladin_index.settings import EXACT_ALIGN
from aladin_index.tokens.bounds import score_best
from aladin_network.errors import EngineUnavailableError, InputError

# Largest collection: the bounds of a million photos take a quarter of a second for each query, and
# half a minute to be computed.
MAX_ITEMS = 300_000

# Hits whose ranks are counted one by one; for more, all scores are sorted.
_COUNTED = 20


def takes_all(options: SearchOptions, collection: Collection) -> bool:
    """Whether all items are candidates: by the search's choice, or by that of the index's build.

    Args:
        options: Options of the search.
        collection: The searched collection.

    Raises:
        InputError: If a search asks for it and the collection is larger than `MAX_ITEMS`.
    """
    if options.candidates == "all":
        if collection.count > MAX_ITEMS:
            raise InputError(
                f"candidates: expected a number, got all, which takes an index of at most "
                f"{MAX_ITEMS:,} items; this one has {collection.count:,}"
            )
        return True
    is_default = options.candidates is None and collection.entry.ann.asked == EXACT_ALIGN
    return is_default and collection.count <= MAX_ITEMS


def rank_page(search: ValidSearch, clock: RerankDeadline) -> tuple[Found, float, RankedPage]:
    """Find and order the hits of a page, among candidates or among all items.

    Args:
        search: The search.
        clock: Stops the second stage at the search's deadline.

    Returns:
        The items found, when the first stage ended (by `time.monotonic`), and the page. Among all
        items there is no first stage.

    Raises:
        InputError: If more items are requested than the vector database can find.
        EngineUnavailableError: If the vector database does not respond.
    """
    if search.is_exhaustive:
        retrieved_s = time.monotonic()
        found, page = rank_everything(search, clock)
        return found, retrieved_s, page
    found = retrieve(search)
    return found, time.monotonic(), rerank(search, found, clock)


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
    count = len(every.rows)
    first, last = (min(each, count) for each in (options.offset, options.offset + options.k))
    pool_size = 0 if search.calibration is None else search.calibration.pool
    in_pool = largest(every.match, pool_size) if pool_size else np.empty(0, dtype=np.int64)
    pool = QueryPool(every.rows[in_pool], every.match[in_pool], heads_ranking=False)
    degraded: Literal["rerank_timeout", "rerank_unavailable"]
    try:
        known = _KnownScores(search, every, clock)
        ranking = _best(search, every, known, first, last)
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


class _KnownScores:
    """Alignment scores of items, each computed once."""

    def __init__(self, search: ValidSearch, every: Everything, clock: RerankDeadline) -> None:
        def align(rows: NDArray[np.int64]) -> NDArray[np.float32]:
            return search.collection.align(search.tokens, search.modality, rows)

        # How many items will be scored is not known: the deadline is checked between blocks.
        self._align: AlignScorer = clock.guard(align, search.direction, 0, search.deadline_s)
        self._rows = every.rows
        self._known = np.zeros(len(every.rows), dtype=np.bool_)
        self._scores = np.zeros(len(every.rows), dtype=np.float32)

    def scores(self, places: NDArray[np.int64]) -> NDArray[np.float32]:
        """Return the scores of the items at some places."""
        new = places[~self._known[places]]
        if len(new):
            self._scores[new] = self._align(self._rows[new])
            self._known[new] = True
        return self._scores[places]


def _best(
    search: ValidSearch, every: Everything, known: _KnownScores, first: int, last: int
) -> Ranking:
    """Return the hits of ranks `first` to `last`, counted from 0."""

    def fuse(align: NDArray[np.float32], match: NDArray[np.float32]) -> NDArray[np.float32]:
        scores = torch.from_numpy(align), torch.from_numpy(match)
        fused: NDArray[np.float32] = search.fusion.combine(*scores, search.weight).numpy()
        return fused

    def score(places: NDArray[np.int64]) -> NDArray[np.float32]:
        return fuse(known.scores(places), every.match[places])

    # The weight is not negative: the fused score of a bound is a bound of the fused score. Without
    # weight, an infinite bound would not be a number.
    upper = every.upper if search.weight > 0 else np.zeros_like(every.upper)
    scored = score_best(fuse(upper, every.match), score, last)
    # Items of equal score are in the order of their cosines, as they are among candidates.
    by_match = np.lexsort((scored.rows, -every.match[scored.rows]))
    items, fused = scored.rows[by_match], scored.keys[by_match]
    align = known.scores(items)
    order = np.argsort(-fused, kind="stable")[first:last]
    places = items[order]
    return Ranking(
        rows=every.rows[places],
        scores=fused[order],
        match=every.match[places],
        match_ranks=_ranks(every.match, places),
        align=align[order],
        align_ranks=_ranks(align, order),
    )


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


def _ranks(scores: NDArray[np.float32], places: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return the ranks of some places among all scores, counted from 1; equal ones by place."""
    if len(places) > _COUNTED:
        order = np.argsort(-scores, kind="stable")
        ranks = np.empty(len(scores), dtype=np.int64)
        ranks[order] = np.arange(1, len(scores) + 1)
        return ranks[places]
    counted: list[int] = []
    for place in places.tolist():
        above = int(np.count_nonzero(scores > scores[place]))
        counted.append(1 + above + int(np.count_nonzero(scores[:place] == scores[place])))
    return np.array(counted, dtype=np.int64)
