"""How likely the hits of a search are right, by the calibration of its index."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from aladin_index.search.backend import Collection, Ordered, SecondStageQuery
from aladin_index.search.ranking import AlignScorer, Ranking
from aladin_network.calibration.calibration import Calibration, Unreliable
from aladin_network.calibration.features import CandidateScores
from aladin_network.types import Direction


class QueryPool(NamedTuple):
    """What a query's hits are judged against: the first stage's best, whichever page is shown.

    Attributes:
        rows: (pool,) int64, best first.
        match: (pool,) float32, their cosines.
        heads_ranking: whether the second stage orders them anyway, as the first of the candidates.
    """

    rows: NDArray[np.int64]
    match: NDArray[np.float32]
    heads_ranking: bool

    @property
    def unranked(self) -> int:
        """Number of alignment scores that it takes beside those of the ranking."""
        return 0 if self.heads_ranking else len(self.rows)

    def align(self, ranking: Ranking, score: AlignScorer) -> NDArray[np.float32]:
        """Return the alignment scores of the pool.

        Args:
            ranking: of the candidates, whole.
            score: scores the rows that are not in it.
        """
        if self.heads_ranking and ranking.align is not None:
            return ranking.align[np.argsort(ranking.match_ranks)[: len(self.rows)]]
        return score(self.rows) if len(self.rows) else np.empty(0, dtype=np.float32)


class Verdict(NamedTuple):
    """What a calibration says of a page; without one, there is nothing to say.

    Attributes:
        kept: (kept,) int64, places of the hits that are likely enough.
        probabilities: of these, that each belongs to the query.
        match_probability: that what was searched holds anything that does.
        no_match: whether that is too little, or nothing of the first page is likely enough; None
            where the probabilities are not reliable.
        reliable: whether the calibration may judge this answer; None without a calibration.
        unreliable_because: the reason if it may not.
        filter_ignored: whether the least probability asked for was not applied, because the
            probabilities are not reliable.
    """

    kept: NDArray[np.int64]
    probabilities: list[float] | list[None]
    match_probability: float | None = None
    no_match: bool | None = None
    reliable: bool | None = None
    unreliable_because: Unreliable | None = None
    filter_ignored: bool = False


def find_pool(
    side: Collection,
    embedding: NDArray[np.float32],
    second_stage: SecondStageQuery | None,
    ordered: Ordered,
    num_candidates: int,
    *,
    size: int,
    ranks_head: bool,
) -> QueryPool:
    """Take the first stage's best, or all where there are fewer.

    Args:
        side: that is searched.
        embedding: (d_match,), of the query, L2-normalised.
        second_stage: see `SearchSide.order`.
        ordered: at least as many items as the pool has, unless the candidates are fewer.
        num_candidates: that were asked for.
        size: of the pool.
        ranks_head: whether the second stage orders the first candidates.
    """
    if num_candidates < size:
        # Asked for anew: fewer candidates must not make another pool.
        pool = side.order(embedding, size, size, second_stage)
        return QueryPool(pool.rows, pool.match, heads_ranking=False)
    return QueryPool(ordered.rows[:size], ordered.match[:size], heads_ranking=ranks_head)


def judge_page(
    calibration: Calibration | None,
    direction: Direction,
    pool: QueryPool,
    pool_align: NDArray[np.float32] | None,
    page: Ranking,
    words: Callable[[NDArray[np.int64]], NDArray[np.int64]],
    offset: int,
    min_probability: float | None,
) -> Verdict:
    """Say how likely the hits of a page are right.

    Args:
        calibration: of the index; None: hits have no probability.
        direction: of the query.
        pool: of the query.
        pool_align: its alignment scores; None: the matching scores judge alone.
        page: the hits.
        words: returns how many words the text of the query and of each row has.
        offset: hits before the page.
        min_probability: of a hit that is kept; None keeps all, and so does a calibration that may
            not judge the answer.
    """
    if calibration is None or len(pool.rows) == 0:  # where there is nothing, nothing is judged
        return Verdict(np.arange(len(page.rows)), [None] * len(page.rows))
    candidates = CandidateScores(pool.rows, pool.match, pool_align, words(pool.rows))
    hits = CandidateScores(page.rows, page.match, page.align, words(page.rows))
    judgement = calibration.of(direction).judge(candidates, hits)
    # Of a text query, all candidates have its length. A photo has none of its own; the lengths of
    # the texts that it is compared with take its place.
    unreliable_because = calibration.unreliable_because(
        direction,
        aligned=candidates.align is not None and hits.align is not None,
        words=float(np.median(candidates.words)),
    )
    if unreliable_because is not None:
        return Verdict(
            kept=np.arange(len(page.rows)),
            probabilities=judgement.probabilities.tolist(),
            match_probability=judgement.match_probability,
            reliable=False,
            unreliable_because=unreliable_because,
            filter_ignored=bool(min_probability),
        )
    kept = np.flatnonzero(judgement.probabilities >= (min_probability or 0.0))
    return Verdict(
        kept=kept,
        probabilities=judgement.probabilities[kept].tolist(),
        match_probability=judgement.match_probability,
        no_match=judgement.no_match or (offset == 0 and len(kept) == 0),
        reliable=True,
    )
