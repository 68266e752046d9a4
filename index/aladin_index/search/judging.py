"""The calibration's judgement of a page of hits: probabilities, "nothing matches", sets."""

from __future__ import annotations

from typing import Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from aladin_index.search.backend import EncodedQuery
from aladin_index.search.candidates import Found, ValidSearch
from aladin_index.search.rerank import RankedPage
from aladin_index.search.results import AnswerSet
from aladin_network.calibration.calibration import Calibration, Unreliable
from aladin_network.calibration.features import CandidateScores
from aladin_network.errors import InputError
from aladin_network.types import Direction

# Searched items, compared with those of the calibration, up to which its sets hold: each further
# item is one more that may be mistaken for the right one.
_MOST_ITEMS = 1.1


class Verdict(NamedTuple):
    """The calibration's judgement of a page; without a calibration, hits have no probability.

    Attributes:
        kept: (kept,) int64, places of the hits that are likely enough.
        probabilities: Probability of each kept hit to belong to the query.
        match_probability: Probability that any searched item belongs to the query.
        no_match: Whether that is too little, or no hit of the first page is likely enough; None
            if the probabilities are not reliable.
        reliable: Whether the calibration may judge this answer; None without a calibration.
        unreliable_because: Why it may not, or None; several_parts without any probability.
        filter_ignored: Whether `min_probability` was not applied because the probabilities are
            not reliable.
        prediction_set: The set that was asked for by a confidence, or None.
    """

    kept: NDArray[np.int64]
    probabilities: list[float] | list[None]
    match_probability: float | None = None
    no_match: bool | None = None
    reliable: bool | None = None
    unreliable_because: Unreliable | Literal["several_parts"] | None = None
    filter_ignored: bool = False
    prediction_set: AnswerSet | None = None


def check_confidence(
    query: EncodedQuery, confidence: float, calibration: Calibration | None, direction: Direction
) -> None:
    """Refuse a confidence that the calibration does not support.

    Args:
        query: The query.
        confidence: Share of queries whose sets are to hold a right item.
        calibration: Calibration of the hits, or None if they have no probability.
        direction: Direction of the search.

    Raises:
        InputError: If there are no sets, or none of this confidence.
    """
    sets = None if calibration is None else calibration.of(direction, _typed(query)).aligned.sets
    if sets is None:
        raise InputError(
            "confidence: images for a text and texts for an image have prediction sets, in an "
            "index whose calibration has them; aladin calibrate CHECKPOINT DATA --index INDEX "
            "fits one"
        )
    if confidence > sets.most:
        raise InputError(
            f"confidence: expected at most {sets.most:g}, the highest that the queries of the "
            f"calibration support, got {confidence:g}"
        )


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
        verdict = Verdict(np.arange(len(page.rows)), [None] * len(page.rows))
        if search.options.confidence is not None:
            no_set = AnswerSet(confidence=search.options.confidence, unreliable_because="no_sets")
            verdict = verdict._replace(prediction_set=no_set)
        if not any(part.search.calibration for part in search.parts):
            return verdict
        return verdict._replace(reliable=False, unreliable_because="several_parts")
    words = search.word_counts(pool.rows)  # the query's, or for a photo those of the texts
    candidates = CandidateScores(pool.rows, pool.match, ranked.pool_align, words)
    if hit_words is None:
        hit_words = search.word_counts(page.rows)
    hits = CandidateScores(page.rows, page.match, page.align, hit_words)
    typed = _typed(search.query)
    embedding = search.query.encoding.embedding[0]
    judgement = calibration.of(search.direction, typed).judge(candidates, hits, embedding)
    unreliable_because = calibration.unreliable_because(
        search.direction,
        aligned=candidates.align is not None and hits.align is not None,
        words=float(np.median(words)),
        typed=typed,
    )
    if search.options.confidence is not None:
        kept, prediction_set = _cut_set(
            search, calibration, candidates, hits, search.options.confidence, typed
        )
        return Verdict(
            kept=kept,
            probabilities=judgement.probabilities[kept].tolist(),
            match_probability=judgement.match_probability,
            no_match=judgement.no_match if unreliable_because is None else None,
            reliable=unreliable_because is None,
            unreliable_because=unreliable_because,
            prediction_set=prediction_set,
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


def _cut_set(
    search: ValidSearch,
    calibration: Calibration,
    pool: CandidateScores,
    hits: CandidateScores,
    confidence: float,
    typed: int | None,
) -> tuple[NDArray[np.int64], AnswerSet]:
    """Keep the hits of the prediction set; without one that holds, keep all.

    Args:
        search: The search.
        calibration: Its calibration.
        pool: The first stage's best items.
        hits: The page.
        confidence: Share of queries whose sets are to hold a right answer.
        typed: Number of words of a text query as it was typed, or None if unknown.

    Returns:
        (kept,) places of the hits that are in the set, and its description.
    """
    everything = np.arange(len(hits.rows))
    of_direction = calibration.of(search.direction, typed)
    sets = (of_direction.matching if pool.align is None else of_direction.aligned).sets
    if sets is None or confidence > sets.most:  # those of the first stage's scores alone
        return everything, AnswerSet(confidence=confidence, unreliable_because="no_sets")
    because: str | None = calibration.unreliable_because(
        search.direction,
        aligned=pool.align is not None,
        words=float(np.median(pool.words)),
        typed=typed,
        tells_matches=False,
    )
    if because is None and search.filter is not None:
        because = "filter"
    elif because is None and search.collection.count > _MOST_ITEMS * sets.items:
        because = "more_items"
    if because is not None:
        return everything, AnswerSet(confidence=confidence, unreliable_because=because)
    in_set = of_direction.in_set(pool, confidence)
    kept = np.flatnonzero(np.isin(hits.rows, pool.rows[in_set]))
    size = int(in_set.sum())
    truncated = len(kept) < size
    level = None if truncated else sets.level(confidence)
    return kept, AnswerSet(confidence=confidence, level=level, size=size, truncated=truncated)


def _typed(query: EncodedQuery) -> int | None:
    """Return the number of words of a text query as it was typed, or None if unknown."""
    return len((query.text or "").split()) or None
