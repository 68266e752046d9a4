"""The first page of a search for several numbers of candidates, the tokens scored once."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from aladin.encoding import Encoding
from aladin.fusion import DirectionFusion
from index.backend import SearchSide
from index.modality import Modality
from index.ranking import Ranking, rank_in_blocks

# Of a cosine: the ANN's and those of the items beyond its candidates are summed in other orders.
_ROUNDING = 1e-6


class FirstStageOrder(NamedTuple):
    """What the first stage hands over for a page.

    Attributes:
        rows: (items,) int64, best first: whole blocks of candidates.
        match: (items,) float32, their cosines.
        block: candidates at a time.
    """

    rows: NDArray[np.int64]
    match: NDArray[np.float32]
    block: int


class ListedOrders:
    """Lists what `TwoStageSearcher.search` lists for one query, whatever the candidates.

    The first stage is asked anew for every number, as a search asks it: what an ANN finds depends
    on how much it is asked for, and the last bits of a cosine on how it is computed. A pair's
    alignment score depends on neither, and takes nearly all of the time: every item is scored
    once, and looked up from then on.
    """

    def __init__(self, side: SearchSide, query: Encoding, modality: Modality, listed: int) -> None:
        """Score every item of a side.

        Args:
            side: with tokens, of the other modality.
            query: one encoded item.
            modality: of the query.
            listed: hits of the page.
        """
        self._side = side
        self._listed = listed
        self._embedding = query.embedding[0].detach().float().cpu().numpy()
        tokens = query.item_tokens(0).detach().float().cpu()
        everything = side.order(self._embedding, side.count, side.count).rows
        # Rows may be any numbers, see `SearchSide`.
        self._rows = np.sort(everything)
        self._align = side.align(tokens, modality, self._rows)

    def first_stage(self, num_candidates: int) -> FirstStageOrder:
        """Ask the first stage for as many blocks of candidates as the page reaches into."""
        total = self._side.count
        block = min(num_candidates, total)
        stop = min(-(-self._listed // block) * block, total)
        return FirstStageOrder(*self._side.order(self._embedding, stop, block))

    def page(self, order: FirstStageOrder, fusion: DirectionFusion, weight: float) -> Ranking:
        """Order the candidates by the fusion, and return the page.

        Args:
            order: of `first_stage`.
            fusion: constants of the direction.
            weight: of the alignment score.
        """
        ranking = rank_in_blocks(
            order.rows, order.match, 1, self._look_up, fusion, weight, order.block
        )
        return ranking.take(slice(0, self._listed))

    def _look_up(self, rows: NDArray[np.int64]) -> NDArray[np.float32]:
        return self._align[np.searchsorted(self._rows, rows)]


def listed_rank(page: Ranking, right: NDArray[np.int64], block: int) -> int:
    """Return the 0-based rank of the best right answer on a page; ties count against us.

    Two items tie where what put one before the other tells no difference: within a block of
    candidates the score, between two blocks the cosine. So one candidate at a time ranks as
    the first stage alone does, and all at a time as the exhaustive order.

    Args:
        page: best first.
        right: rows of the right answers.
        block: candidates that were ordered at a time.

    Returns:
        The number of wrong answers before it or level with it; the length of the page where no
        right answer is on it.
    """
    places = np.arange(len(page.rows))
    is_right = np.isin(page.rows, right)
    ranks = [len(places)]
    for place in np.flatnonzero(is_right):
        together = places // block == place // block
        level = np.where(
            together,
            page.scores == page.scores[place],
            np.abs(page.match - page.match[place]) <= _ROUNDING,
        )
        ranks.append(int(np.count_nonzero(((places < place) | level) & ~is_right)))
    return min(ranks)
