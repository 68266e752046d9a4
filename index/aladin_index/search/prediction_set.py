"""Prediction sets of searches with a confidence."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from aladin_index.search.answer_facts import AnswerSet
from aladin_index.search.backend import EncodedQuery
from aladin_index.search.candidates import ValidSearch
from aladin_network.calibration.calibration import Calibration
from aladin_network.calibration.features import CandidateScores
from aladin_network.errors import InputError
from aladin_network.types import Direction

# Searched items, compared with those of the calibration, up to which its sets hold: each further
# item is one more that may be mistaken for the right one.
_MOST_ITEMS = 1.1


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
    typed = len((query.text or "").split()) or None
    sets = None if calibration is None else calibration.of(direction, typed).aligned.sets
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


def cut_set(
    search: ValidSearch,
    calibration: Calibration,
    pool: CandidateScores,
    hits: CandidateScores,
    typed: int | None,
) -> tuple[NDArray[np.int64], AnswerSet]:
    """Keep the hits of the prediction set; without one that holds, keep all.

    Args:
        search: A search with a confidence.
        calibration: Its calibration.
        pool: The first stage's best items.
        hits: The page.
        typed: Number of words of a text query as it was typed, or None if unknown.

    Returns:
        (kept,) places of the hits that are in the set, and its description.
    """
    everything, confidence = np.arange(len(hits.rows)), search.options.confidence or 0.0
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
