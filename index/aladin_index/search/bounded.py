"""The best items by the fused score, of which only those are scored that can be among them."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from aladin_index.search.candidates import AlignScorer, ValidSearch
from aladin_index.search.collection import Everything
from aladin_index.tokens.bounds import score_best

# Hits whose ranks are counted one by one; for more, all scores are sorted.
_COUNTED = 20


class KnownScores:
    """Alignment scores of items, each computed once."""

    def __init__(self, rows: NDArray[np.int64], align: AlignScorer) -> None:
        """Score some rows.

        Args:
            rows: (items,) rows of the items.
            align: Scores rows.
        """
        self._align = align
        self._rows = rows
        self._known = np.zeros(len(rows), dtype=np.bool_)
        self._scores = np.zeros(len(rows), dtype=np.float32)

    def scores(self, places: NDArray[np.int64]) -> NDArray[np.float32]:
        """Return the scores of the items at some places."""
        new = places[~self._known[places]]
        if len(new):
            self._scores[new] = self._align(self._rows[new])
            self._known[new] = True
        return self._scores[places]


class BestItems(NamedTuple):
    """The hits of a page, best first.

    Attributes:
        places: (hits,) int64, their places among the items.
        fused: (hits,) float32, their fused scores.
        align: (hits,) float32, their alignment scores.
        align_ranks: (hits,) int64, ranks of these among the scored items, counted from 1.
    """

    places: NDArray[np.int64]
    fused: NDArray[np.float32]
    align: NDArray[np.float32]
    align_ranks: NDArray[np.int64]


def best_items(
    search: ValidSearch,
    every: Everything,
    known: KnownScores,
    ties: NDArray[np.float32] | NDArray[np.int64],
    page: slice,
    *,
    all_ranks: bool,
) -> BestItems:
    """Find the hits of a page.

    Args:
        search: The search.
        every: The items to choose from.
        known: Scores them.
        ties: (items,) keys that order items of equal score, the smallest first.
        page: Ranks of the page's hits, counted from 0.
        all_ranks: Whether the ranks of the alignment scores have to be those among all items;
            items that can have a better one are then scored as well.
    """

    def fuse(align: NDArray[np.float32], match: NDArray[np.float32]) -> NDArray[np.float32]:
        return search.fusion.combine(align, match, search.weight)

    def score(places: NDArray[np.int64]) -> NDArray[np.float32]:
        return fuse(known.scores(places), every.match[places])

    # The weight is not negative: the fused score of a bound is a bound of the fused score. Without
    # weight, an infinite bound would not be a number.
    upper = every.upper if search.weight > 0 else np.zeros_like(every.upper)
    scored = score_best(fuse(upper, every.match), score, page.stop)
    in_order = np.lexsort((scored.rows, ties[scored.rows], -scored.keys))[page]
    hits, fused = scored.rows[in_order], scored.keys[in_order]
    items = scored.rows
    if all_ranks and len(hits):
        least = known.scores(hits).min()
        items = np.union1d(items, np.flatnonzero(every.upper >= least))
    items = items[np.lexsort((items, ties[items]))]
    place_of = np.empty(len(every.rows), dtype=np.int64)
    place_of[items] = np.arange(len(items))
    return BestItems(
        places=hits,
        fused=fused,
        align=known.scores(hits),
        align_ranks=ranks_of(known.scores(items), place_of[hits]),
    )


def ranks_of(scores: NDArray[np.float32], places: NDArray[np.int64]) -> NDArray[np.int64]:
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
