"""The candidates of a page, in blocks: the nearest, or all items, with those that have its words.

The first `candidates` rows of the first stage are one block, which is ordered by the total, and
each following `candidates` rows the next, so that the order does not depend on the size of a page.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from aladin_index.ann.exact_search import largest
from aladin_index.search.collection import ExhaustiveQuery, FirstStageQuery, Ordered
from aladin_index.search.plan import Plan

_NO_PLACES = np.empty(0, dtype=np.int64)


class Pool(NamedTuple):
    """The first stage's best items, against which hits are judged, regardless of the page.

    Attributes:
        rows: (pool,) int64, best first.
        match: (pool,) float32, their cosines.
        places: (pool,) int64, their places among the candidates; None if they are not among them.
    """

    rows: NDArray[np.int64]
    match: NDArray[np.float32]
    places: NDArray[np.int64] | None


_NONE = Pool(_NO_PLACES, np.empty(0, dtype=np.float32), _NO_PLACES)


class Candidates(NamedTuple):
    """The items that a page is chosen from, in whole blocks.

    Attributes:
        items: The items; their number of candidates is that of the first block.
        blocks: (items,) int64, ascending number of the block of each; None for a single block.
        page: Places, in the order of the hits, of those on the page.
        pool: Items that hits are judged against.
        is_empty: Whether the search finds no item at all.
        start: Number of items in the blocks before these.
        are_nearest: Whether they are in the order of the first stage.
    """

    items: Ordered
    blocks: NDArray[np.int64] | None
    page: slice
    pool: Pool
    is_empty: bool
    start: int = 0
    are_nearest: bool = True

    @property
    def aligned_rows(self) -> NDArray[np.int64]:
        """Rows of the items, and after them those of the pool unless it is among them."""
        rows, pool = self.items.rows, self.pool
        return rows if pool.places is not None else np.append(rows, pool.rows)


def sharing(plans: Sequence[Plan]) -> list[list[int]]:
    """Return the places of the plans that have a collection in common."""
    groups: dict[int, list[int]] = {}
    for place, plan in enumerate(plans):
        groups.setdefault(id(plan.collection), []).append(place)
    return list(groups.values())


def find_candidates(plans: Sequence[Plan]) -> list[Candidates]:
    """Find the candidates of pages; searches that share a collection are answered together."""
    found: dict[int, Candidates] = {}
    for group in sharing(plans):
        collection = plans[group[0]].collection
        of_all = [_wanted_of_all(plans[place]) for place in group if plans[place].is_exhaustive]
        wanted = [_wanted(plans[place]) for place in group if not plans[place].is_exhaustive]
        every = iter(collection.everything(of_all) if of_all else ())
        ordered = iter(collection.order_all(wanted) if wanted else ())
        for place in group:
            plan = plans[place]
            if plan.is_exhaustive:
                found[place] = _every(plan, next(every))
            else:
                of_plan = next(ordered)
                if plan.own_rows:
                    of_plan = of_plan.without(plan.own_rows)._replace(upper=None)
                found[place] = (_cut if plan.words is None else _with_words)(plan, of_plan)
    return [found[place] for place in range(len(plans))]


def _wanted(plan: Plan) -> FirstStageQuery:
    """Return what the first stage is asked for: whole blocks of candidates, and the pool."""
    block, own = plan.first.candidates, len(plan.own_rows)
    stop, first = plan.page.stop, block
    joined = 0 if plan.words is None else len(plan.words.rows)
    if plan.reranks or plan.words is not None:
        stop = -(-stop // block) * block  # whole blocks
        first += own  # candidates: what lies beyond is compared exactly, with every item
    # The pool does not depend on the page size, and is available for later pages, too.
    # More for the query's own items; a longer order begins with the shorter one.
    count = max(stop, min(plan.pool_size, block)) + own + joined
    return plan.first._replace(wanted=count, candidates=first)


def _cut(plan: Plan, ordered: Ordered) -> Candidates:
    """Cut the blocks of the page out of an order; without a total, every item is a block."""
    rows, match, upper = ordered.rows, ordered.match, ordered.upper
    block = plan.first.candidates if plan.reranks else 1
    first, last = plan.page.start, plan.page.stop
    # There may be fewer items than the page, or the places before it, require.
    stop = min(-(-last // block) * block, len(rows))
    first, last = min(first, len(rows)), min(last, len(rows))
    start = first // block * block if first < last else first
    stop = stop if first < last else first
    cut = slice(start, stop)
    # Bounds are of use in one block only.
    upper = upper[cut] if upper is not None and stop - start <= block else None
    candidates = min(ordered.candidates, plan.first.candidates)
    return Candidates(
        items=Ordered(rows[cut], match[cut], candidates, upper),
        blocks=None if stop - start <= block else np.arange(stop - start) // block,
        page=slice(first - start, last - start),
        pool=_pool(plan, ordered, plan.reranks and start == 0 < stop) if plan.pool_size else _NONE,
        is_empty=len(rows) == 0,
        start=start,
    )


def _with_words(plan: Plan, ordered: Ordered) -> Candidates:
    """Join the items that have rare words to the first block."""
    assert plan.words is not None
    block = plan.first.candidates
    extra = plan.words.rows[~np.isin(plan.words.rows, [*ordered.rows[:block], *plan.own_rows])]
    beyond = -(-max(plan.page.stop - block, 0) // block) * block
    tail = np.flatnonzero(~np.isin(ordered.rows[block:], extra))[:beyond] + block
    [of_extra] = plan.collection.match(plan.first.embedding[None], [plan.first.hubs], extra)
    first = np.zeros(min(block, len(ordered.rows)) + len(extra), dtype=np.int64)
    rows = np.concatenate([ordered.rows[:block], extra, ordered.rows[tail]])
    match = np.concatenate([ordered.match[:block], of_extra, ordered.match[tail]])
    return Candidates(
        items=Ordered(rows, match, min(ordered.candidates, block) + len(extra)),
        blocks=np.append(first, 1 + np.arange(len(tail)) // block),
        page=plan.page,
        pool=_pool(plan, ordered, plan.reranks) if plan.pool_size else _NONE,
        is_empty=len(rows) == 0,
        are_nearest=False,
    )


def _wanted_of_all(plan: Plan) -> ExhaustiveQuery:
    """Return what all items are candidates of; words and several terms add to the score."""
    term, is_plain = plan.terms[0], plan.words is None and not plan.is_joined
    first = plan.first._replace(
        wanted=plan.page.stop,
        candidates=plan.pool_size,
        second_stage=term.stage if is_plain else None,
    )
    return ExhaustiveQuery(first, term.fusion, term.weight, plan.own_rows)


def _every(plan: Plan, items: Ordered) -> Candidates:
    """Make one block of all items."""
    places = largest(items.match, plan.pool_size) if plan.pool_size else _NO_PLACES
    return Candidates(
        items=items,
        blocks=None,
        page=plan.page,
        pool=Pool(items.rows[places], items.match[places], places),
        is_empty=len(items.rows) == 0,
        are_nearest=False,
    )


def _pool(plan: Plan, ordered: Ordered, is_scored: bool) -> Pool:
    """Take the first stage's best items for the pool, or all if there are fewer."""
    size = plan.pool_size
    if plan.first.candidates < size:
        # Search again: fewer candidates must not change the pool, whose scores the calibration was
        # fitted to.
        return Pool(*plan.collection.order(plan.nearest(size))[:2], None)
    rows, match = ordered.rows[:size], ordered.match[:size]
    return Pool(rows, match, np.arange(len(rows), dtype=np.int64) if is_scored else None)
