"""How likely the hits of a page are right, by the calibration of the index."""

from __future__ import annotations

from typing import Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from aladin_index.search.candidates import Pool
from aladin_index.search.order import RankedPage
from aladin_index.search.plan import Plan
from aladin_network.calibration.calibration import Calibration, Unreliable
from aladin_network.calibration.judging import CandidateScores

# Why an answer of a calibrated index has no probabilities.
Unjudged = Unreliable | Literal["several_terms", "box"]


class Verdict(NamedTuple):
    """The calibration's judgement of a page; without a calibration, hits have no probability.

    Attributes:
        kept: (kept,) int64, places of the hits that are likely enough.
        probabilities: Probability of each kept hit to belong to the query.
        no_match: Whether nothing matches, or no hit of the first page is likely enough; None
            without probabilities.
        reliable: Whether the calibration may judge this answer; None without a calibration.
        unreliable_because: Why it may not, or None.
        filter_ignored: Whether `min_probability` was not applied because the probabilities are
            not reliable.
    """

    kept: NDArray[np.int64]
    probabilities: list[float] | list[None]
    no_match: bool | None = None
    reliable: bool | None = None
    unreliable_because: Unjudged | None = None
    filter_ignored: bool = False


def judge(
    plan: Plan, pool: Pool, ranked: RankedPage, hit_words: NDArray[np.int64] | None = None
) -> Verdict:
    """Estimate how likely the hits of a page are right; `hit_words` are the counts of their words.

    Their scores are compared with those of the first stage's best items (with a filter, the best
    that pass it), and so depend neither on the order nor on the page.
    """
    calibration, page = plan.calibration, ranked.ranking
    everything = Verdict(np.arange(len(page.rows)), [None] * len(page.rows))
    least = plan.options.min_probability or 0.0
    if calibration is None:
        return everything
    because = _unreliable_because(plan, calibration, pool, ranked)
    if because is not None:
        return everything._replace(
            reliable=False, unreliable_because=because, filter_ignored=least > 0
        )
    if len(pool.rows) == 0:
        return everything
    words = plan.word_counts(pool.rows)  # the query's, or for a photo those of the texts
    if hit_words is None:
        hit_words = plan.word_counts(page.rows)
    judgement = calibration.of(plan.direction).judge(
        CandidateScores(pool.rows, pool.match, ranked.pool_align, words),
        CandidateScores(page.rows, page.match, page.align, hit_words),
    )
    kept = np.flatnonzero(judgement.probabilities >= least)
    return Verdict(
        kept=kept,
        probabilities=judgement.probabilities[kept].tolist(),
        no_match=judgement.no_match or (plan.options.offset == 0 and len(kept) == 0),
        reliable=True,
    )


def _unreliable_because(
    plan: Plan, calibration: Calibration, pool: Pool, ranked: RankedPage
) -> Unjudged | None:
    """Return why the calibration may not judge an answer, or None."""
    if plan.is_joined:
        return "several_terms"
    lead = plan.terms[0].term
    if lead.box is not None:
        return "box"
    # Without the second stage, the lengths of the texts found for an image are not known.
    is_uncounted = ranked.degraded == "rerank_unavailable" and lead.modality == "image"
    is_aligned = ranked.pool_align is not None and ranked.ranking.align is not None
    because = calibration.unreliable_because(plan.direction, aligned=is_aligned)
    if because is None and is_uncounted:
        because = "no_alignment"
    return None if because == "no_alignment" and len(pool.rows) == 0 else because
