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

_LEVEL: tuple[Feature, ...] = ("match", "match_mean", "log_words")
_STANDING: tuple[Feature, ...] = ("match_gap", "match_spread")
_ALIGN_LEVEL: tuple[Feature, ...] = (*_LEVEL, "align", "align_mean")
_WORD_LEVEL: tuple[Feature, ...] = (*_LEVEL, "per_word", "per_word_mean")
_ALIGN_STANDING: tuple[Feature, ...] = (*_STANDING, "align_gap", "align_spread")
_WORD_STANDING: tuple[Feature, ...] = (*_STANDING, "per_word_gap", "per_word_spread")
# What a fit chooses from, smallest first. Whether the sum over words or their mean tells more
# depends on how much the network's cosines grow from wrong to right.
FEATURE_SETS: tuple[tuple[Feature, ...], ...] = (
    _ALIGN_LEVEL,
    _WORD_LEVEL,
    _ALIGN_LEVEL + _ALIGN_STANDING,
    _WORD_LEVEL + _WORD_STANDING,
    (*_ALIGN_LEVEL, *_ALIGN_STANDING, "match_z", "align_z"),
    (*_WORD_LEVEL, *_WORD_STANDING, "match_z", "per_word_z"),
)

# The features of each score, in the order of `_standing`.
_FEATURES: tuple[tuple[Feature, ...], ...] = (
    ("match", "match_gap", "match_mean", "match_spread", "match_z"),
    ("align", "align_gap", "align_mean", "align_spread", "align_z"),
    ("per_word", "per_word_gap", "per_word_mean", "per_word_spread", "per_word_z"),
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
    features: Features = {"log_words": np.log(np.maximum(hits.words, 1))}
    # All scores at once: a search has a tenth of a millisecond for this.
    standing = _standing(_scores(hits), _scores(pool), hits.rows, pool.rows)
    for place, names in enumerate(_FEATURES[: len(standing[0])]):
        features |= {name: values[place] for name, values in zip(names, standing, strict=True)}
    return features


def query_features(pool: CandidateScores) -> Features:
    """Describe a query by the scores of its pool.

    Args:
        pool: the first stage's best for the query, at least one, in its order.

    Returns:
        (1,) values by name: those of the item that is best by the cosine, by the alignment score
        or by the alignment per word, whichever the feature is of; `log_words` is the pool's mean.
    """
    return _of_best(hit_features(pool, pool))


def judged_features(pool: CandidateScores, hits: CandidateScores) -> tuple[Features, Features]:
    """Describe a query and its hits in one go, as `query_features` and `hit_features` do.

    Args:
        pool: the first stage's best for the query, at least one, in its order.
        hits: any items; with alignment scores if and only if the pool has them.
    """
    size = len(pool.rows)
    features = hit_features(pool, pool.joined(hits))
    of_pool: Features = {name: values[:size] for name, values in features.items()}
    return _of_best(of_pool), {name: values[size:] for name, values in features.items()}


def _of_best(features: Features) -> Features:
    """Take of each score's features the value of the item with the best score."""
    best: Features = {}
    for names in _FEATURES:
        if names[0] in features:
            place = int(features[names[0]].argmax())
            best |= {name: features[name][place : place + 1] for name in names}
    # A photo that asks has no words; those of one of its candidates would say little of it.
    best["log_words"] = features["log_words"].mean(keepdims=True)
    return best


def _scores(items: CandidateScores) -> NDArray[np.float64]:
    """Return (scores, items): cosine, alignment score and alignment per word, or the first."""
    if items.align is None:
        return items.match.astype(np.float64)[np.newaxis]
    scores = np.empty((3, len(items.rows)))
    scores[0], scores[1] = items.match, items.align
    scores[2] = scores[1] / np.maximum(items.words, 1)
    return scores


def _standing(
    scores: NDArray[np.float64],
    of_pool: NDArray[np.float64],
    rows: NDArray[np.int64],
    pool_rows: NDArray[np.int64],
) -> tuple[NDArray[np.float64], ...]:
    """Return scores, gaps, means, spreads and z, (scores, hits) each."""
    scores, of_pool = scores[: len(of_pool)], of_pool[: len(scores)]
    best = of_pool.argmax(axis=1)
    ascending = np.sort(of_pool, axis=1)
    # Where the pool has no other item, nothing is known of runners-up: none is ahead or behind.
    second = ascending[:, -2:-1] if len(pool_rows) > 1 else np.full((len(best), 1), np.nan)
    is_best = rows == pool_rows[best][:, np.newaxis]
    gap = np.nan_to_num(scores - np.where(is_best, second, ascending[:, -1:]), copy=False)
    mean = of_pool.mean(axis=1, keepdims=True)
    spread = np.sqrt(np.square(of_pool - mean).mean(axis=1, keepdims=True))
    z = (scores - mean) / np.maximum(spread, _LEAST_SPREAD)
    hits = len(rows)
    return scores, gap, np.repeat(mean, hits, axis=1), np.repeat(spread, hits, axis=1), z
