"""What probabilities are computed from; the fit and the search make it here, both alike."""

from __future__ import annotations

from typing import Literal

import numpy as np
from numpy.typing import NDArray

from aladin.calibration.scores import CandidateScores

# Of each of three scores, the cosine (match), the alignment score (align) and that divided by the
# number of words (per_word): the score itself; how far it is above the best other one of the pool;
# the pool's mean and deviation (spread); and how many deviations it is above the mean (z).
Feature = Literal[
    "match",
    "match_gap",
    "match_mean",
    "match_spread",
    "match_z",
    "align",
    "align_gap",
    "align_mean",
    "align_spread",
    "align_z",
    "per_word",
    "per_word_gap",
    "per_word_mean",
    "per_word_spread",
    "per_word_z",
    "log_words",
]
Features = dict[Feature, NDArray[np.float64]]

_MATCH_STANDING: tuple[Feature, ...] = ("match_gap", "match_mean", "match_spread")
_ALIGN_STANDING: tuple[Feature, ...] = ("align_gap", "align_mean", "align_spread")
_PER_WORD_STANDING: tuple[Feature, ...] = ("per_word_gap", "per_word_mean", "per_word_spread")
_BY_ALIGN: tuple[Feature, ...] = ("match", "align", "log_words")
_BY_WORD: tuple[Feature, ...] = ("match", "per_word", "log_words")
_ALIGN_STANDS = _BY_ALIGN + _MATCH_STANDING + _ALIGN_STANDING
_WORD_STANDS = _BY_WORD + _MATCH_STANDING + _PER_WORD_STANDING
# What a fit chooses from, smallest first. Whether the sum over words or their mean tells more
# depends on how much the network's cosines grow from wrong to right.
FEATURE_SETS: tuple[tuple[Feature, ...], ...] = (
    _BY_ALIGN,
    _BY_WORD,
    _ALIGN_STANDS,
    _WORD_STANDS,
    (*_ALIGN_STANDS, "match_z", "align_z"),
    (*_WORD_STANDS, "match_z", "per_word_z"),
)

# Scores that differ less are taken for equal: a pool of copies has hardly any deviation.
_LEAST_SPREAD = 1e-3


def hit_features(pool: CandidateScores, hits: CandidateScores) -> Features:
    """Describe hits by their scores, and by how these stand out from the query's pool.

    Args:
        pool: the first stage's best for the query, at least one, in its order.
        hits: any items, those of the pool included.

    Returns:
        (hits,) values by name; those of the alignment are missing where the pool or the hits
        have no such score.
    """
    others = hits.rows[:, np.newaxis] != pool.rows  # (hits, pool)
    match, of_pool = hits.match.astype(np.float64), pool.match.astype(np.float64)
    gap, mean, spread, z = _standing(match, of_pool, others)
    features: Features = {
        "match": match,
        "match_gap": gap,
        "match_mean": mean,
        "match_spread": spread,
        "match_z": z,
        "log_words": np.log(np.maximum(hits.words, 1)),
    }
    if hits.align is not None and pool.align is not None:
        align, of_pool = hits.align.astype(np.float64), pool.align.astype(np.float64)
        gap, mean, spread, z = _standing(align, of_pool, others)
        features |= {
            "align": align,
            "align_gap": gap,
            "align_mean": mean,
            "align_spread": spread,
            "align_z": z,
        }
        per_word = align / np.maximum(hits.words, 1)
        gap, mean, spread, z = _standing(per_word, of_pool / np.maximum(pool.words, 1), others)
        features |= {
            "per_word": per_word,
            "per_word_gap": gap,
            "per_word_mean": mean,
            "per_word_spread": spread,
            "per_word_z": z,
        }
    return features


def query_features(pool: CandidateScores) -> Features:
    """Describe a query by the scores of its pool.

    Args:
        pool: the first stage's best for the query, at least one, in its order.

    Returns:
        (1,) values by name: those of the item that is best by the cosine, by the alignment score
        or by the alignment per word, whichever the feature is of; the words are those of the
        item with the best cosine.
    """
    features = hit_features(pool, pool)
    best = {score: int(np.argmax(features[score])) for score in _scores(features)}
    return {name: values[[best[_score_of(name)]]] for name, values in features.items()}


def _scores(features: Features) -> list[Literal["match", "align", "per_word"]]:
    return ["match", "align", "per_word"] if "align" in features else ["match"]


def _score_of(name: Feature) -> Literal["match", "align", "per_word"]:
    if name.startswith("align"):
        return "align"
    return "per_word" if name.startswith("per_word") else "match"


def _standing(
    scores: NDArray[np.float64], of_pool: NDArray[np.float64], others: NDArray[np.bool_]
) -> tuple[NDArray[np.float64], NDArray[np.float64], NDArray[np.float64], NDArray[np.float64]]:
    """Return gap, mean, spread and z of scores; `others` marks the pool's items but the own."""
    best_other = np.where(others, of_pool, -np.inf).max(axis=1)
    # Where the pool has no other item, nothing is known of runners-up: none is ahead or behind.
    gap = np.where(np.isinf(best_other), 0.0, scores - best_other)
    mean, spread = of_pool.mean(), of_pool.std()
    z = (scores - mean) / max(spread, _LEAST_SPREAD)
    return gap, np.full(len(scores), mean), np.full(len(scores), spread), z
