"""The calibration's judgement of a page: how likely its hits belong to the query."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from aladin_index.search.candidates import Found, ValidSearch
from aladin_index.search.rerank import RankedPage
from aladin_network.calibration.calibration import Unreliable
from aladin_network.calibration.features import CandidateScores


class Verdict(NamedTuple):
    """The calibration's judgement of a page; without a calibration, hits have no probability.

    Attributes:
        kept: (kept,) int64, places of the hits that are likely enough.
        probabilities: Probability of each kept hit to belong to the query.
        match_probability: Probability that any searched item belongs to the query.
        no_match: Whether that is too little, or no hit of the first page is likely enough; None
            if the probabilities are not reliable.
        reliable: Whether the calibration may judge this answer; None without a calibration.
        unreliable_because: Why it may not, or None.
        filter_ignored: Whether `min_probability` was not applied because the probabilities are
            not reliable.
    """

    kept: NDArray[np.int64]
    probabilities: list[float] | list[None]
    match_probability: float | None = None
    no_match: bool | None = None
    reliable: bool | None = None
    unreliable_because: Unreliable | None = None
    filter_ignored: bool = False


def judge(
    search: ValidSearch,
    found: Found,
    ranked: RankedPage,
    hit_words: NDArray[np.int64] | None = None,
) -> Verdict:
    """Estimate how likely the hits of a page are right.

    Args:
        search: The search.
        found: Result of the first stage, with the pool that hits are judged against.
        ranked: The page; without alignment scores of the pool, the matching scores judge alone.
        hit_words: (hits,) `ValidSearch.word_counts` of the hits, or None to look them up.
    """
    calibration, pool, page = search.calibration, found.pool, ranked.ranking
    # Without the second stage, the lengths of the texts found for an image are not known.
    is_uncounted = ranked.degraded == "rerank_unavailable" and search.modality == "image"
    if calibration is None or is_uncounted or len(pool.rows) == 0:
        return Verdict(np.arange(len(page.rows)), [None] * len(page.rows))
    words = search.word_counts(pool.rows)  # the query's, or for a photo those of the texts
    candidates = CandidateScores(pool.rows, pool.match, ranked.pool_align, words)
    if hit_words is None:
        hit_words = search.word_counts(page.rows)
    hits = CandidateScores(page.rows, page.match, page.align, hit_words)
    typed = len((search.query.text or "").split()) or None
    judgement = calibration.of(search.direction, typed).judge(candidates, hits)
    unreliable_because = calibration.unreliable_because(
        search.direction,
        aligned=candidates.align is not None and hits.align is not None,
        words=float(np.median(words)),
        typed=typed,
    )
    least = search.options.min_probability or 0.0
    if unreliable_because is not None:
        return Verdict(
            kept=np.arange(len(page.rows)),
            probabilities=judgement.probabilities.tolist(),
            match_probability=judgement.match_probability,
            reliable=False,
            unreliable_because=unreliable_because,
            filter_ignored=least > 0,
        )
    kept = np.flatnonzero(judgement.probabilities >= least)
    return Verdict(
        kept=kept,
        probabilities=judgement.probabilities[kept].tolist(),
        match_probability=judgement.match_probability,
        no_match=judgement.no_match or (search.options.offset == 0 and len(kept) == 0),
        reliable=True,
    )
