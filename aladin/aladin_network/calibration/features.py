"""Features of candidates' scores, and the logistic regression that is applied to them.

Fitting and searching use the same functions; they require NumPy only.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

# Number of candidates by which a query's answer is judged: the first stage's best. More of them
# show better what wrong answers score: on Flickr8k, 100 instead of 20 add 0.003 to the AUROC of "is
# there a match at all". It is also the default number of candidates that a search passes to the
# second stage.
POOL = 100

_LEVEL: tuple[Feature, ...] = ("match", "match_mean", "log_words")
_STANDING: tuple[Feature, ...] = ("match_gap", "match_spread")
_ALIGN_LEVEL: tuple[Feature, ...] = (*_LEVEL, "align", "align_mean")
_WORD_LEVEL: tuple[Feature, ...] = (*_LEVEL, "per_word", "per_word_mean")
_ALIGN_STANDING: tuple[Feature, ...] = (*_STANDING, "align_gap", "align_spread")
_WORD_STANDING: tuple[Feature, ...] = (*_STANDING, "per_word_gap", "per_word_spread")
# Feature sets that a fit chooses from, smallest first. Whether the sum over words or their mean is
# more informative depends on how much the network's cosines grow from wrong to right.
FEATURE_SETS: tuple[tuple[Feature, ...], ...] = (
    _ALIGN_LEVEL,
    _WORD_LEVEL,
    _ALIGN_LEVEL + _ALIGN_STANDING,
    _WORD_LEVEL + _WORD_STANDING,
    (*_ALIGN_LEVEL, *_ALIGN_STANDING, "match_z", "align_z"),
    (*_WORD_LEVEL, *_WORD_STANDING, "match_z", "per_word_z"),
)
# The same for queries that were made up: whatever they score, it matters how unlike the others
# they are.
NOVELTY_SETS: tuple[tuple[Feature, ...], ...] = (
    (*_ALIGN_LEVEL, *_ALIGN_STANDING, "novelty"),
    (*_WORD_LEVEL, *_WORD_STANDING, "novelty"),
)

# The features of each score, in the order of `_standing`.
_FEATURES: tuple[tuple[Feature, ...], ...] = (
    ("match", "match_gap", "match_mean", "match_spread", "match_z"),
    ("align", "align_gap", "align_mean", "align_spread", "align_z"),
    ("per_word", "per_word_gap", "per_word_mean", "per_word_spread", "per_word_z"),
)

# Scores that differ by less are treated as equal: a pool of copies has hardly any deviation.
_LEAST_SPREAD = 1e-3


class CandidateScores(NamedTuple):
    """Scores of some items for one query.

    Attributes:
        rows: (n,) int64; tells items apart, the same item has the same row everywhere.
        match: (n,) float32, cosines of the embeddings.
        align: (n,) float32, alignment scores; None where the second stage could not score them.
        words: (n,) int64, words of the text of each pair: the query's, or the item's.
    """

    rows: NDArray[np.int64]
    match: NDArray[np.float32]
    align: NDArray[np.float32] | None
    words: NDArray[np.int64]

    def take(self, places: NDArray[np.int64] | NDArray[np.bool_] | slice) -> CandidateScores:
        """Return the items at some places."""
        align = None if self.align is None else self.align[places]
        return CandidateScores(self.rows[places], self.match[places], align, self.words[places])

    def joined(self, others: CandidateScores) -> CandidateScores:
        """Return these items and others; alignment scores only if both have them."""
        align = None
        if self.align is not None and others.align is not None:
            align = np.concatenate([self.align, others.align])
        return CandidateScores(
            rows=np.concatenate([self.rows, others.rows]),
            match=np.concatenate([self.match, others.match]),
            align=align,
            words=np.concatenate([self.words, others.words]),
        )

    def without_alignment(self) -> CandidateScores:
        """Return the same items without alignment scores."""
        return self._replace(align=None)


class Judgement(NamedTuple):
    """Calibrated probabilities of an answer.

    Attributes:
        match_probability: Probability that a right answer is among the items that were searched.
        no_match: Whether the match probability is so low that, judging by the scores, there is no
            match.
        probabilities: (hits,) float64, that each hit belongs together with the query.
    """

    match_probability: float
    no_match: bool
    probabilities: NDArray[np.float64]


# For each of three scores, namely the cosine (match), the alignment score (align) and the latter
# divided by the number of words (per_word): the score itself; its distance from the best other
# score of the pool (gap); the pool's mean and standard deviation (spread); and the number of
# deviations above the mean (z). `novelty` says how unlike the known queries the query is, see
# `aladin_network.calibration.density`.
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
    "novelty",
]
Features = dict[Feature, NDArray[np.float64]]


def hit_features(pool: CandidateScores, hits: CandidateScores) -> Features:
    """Describe hits by their scores, and by how these stand out from the query's pool.

    Args:
        pool: The first stage's best candidates for the query, at least one, in its order.
        hits: Any items, including those of the pool.

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


def query_features(pool: CandidateScores, novelty: float | None = None) -> Features:
    """Describe a query by the scores of its pool.

    Args:
        pool: The first stage's best candidates for the query, at least one, in its order.
        novelty: How unlike the known queries the query is, or None if it was not measured.

    Returns:
        (1,) values by name: those of the item that is best by the cosine, by the alignment score
        or by the alignment per word, whichever the feature is of; `log_words` is the pool's mean.
    """
    return _of_best(hit_features(pool, pool), novelty)


def judged_features(
    pool: CandidateScores, hits: CandidateScores, novelty: float | None = None
) -> tuple[Features, Features]:
    """Compute `query_features` and `hit_features` of a query and its hits together.

    Args:
        pool: The first stage's best candidates for the query, at least one, in its order.
        hits: Any items; with alignment scores if and only if the pool has them.
        novelty: See `query_features`.
    """
    size = len(pool.rows)
    features = hit_features(pool, pool.joined(hits))
    of_pool: Features = {name: values[:size] for name, values in features.items()}
    return _of_best(of_pool, novelty), {name: values[size:] for name, values in features.items()}


def _of_best(features: Features, novelty: float | None) -> Features:
    """Take each score's features from the item with the best score, and add the query's own."""
    best: Features = {}
    for names in _FEATURES:
        if names[0] in features:
            place = int(features[names[0]].argmax())
            best |= {name: features[name][place : place + 1] for name in names}
    # A photo query has no words, and the number of words of one candidate would not be informative.
    best["log_words"] = features["log_words"].mean(keepdims=True)
    if novelty is not None:
        best["novelty"] = np.array([novelty])
    return best


def _scores(items: CandidateScores) -> NDArray[np.float64]:
    """Return (scores, items): cosine, alignment and alignment per word, or only the cosine."""
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
    # If the pool has no other item, there is no runner-up, and the gap is 0.
    second = ascending[:, -2:-1] if len(pool_rows) > 1 else np.full((len(best), 1), np.nan)
    is_best = rows == pool_rows[best][:, np.newaxis]
    gap = np.nan_to_num(scores - np.where(is_best, second, ascending[:, -1:]), copy=False)
    mean = of_pool.mean(axis=1, keepdims=True)
    spread = np.sqrt(np.square(of_pool - mean).mean(axis=1, keepdims=True))
    z = (scores - mean) / np.maximum(spread, _LEAST_SPREAD)
    hits = len(rows)
    return scores, gap, np.repeat(mean, hits, axis=1), np.repeat(spread, hits, axis=1), z


@dataclass(frozen=True, kw_only=True)
class Term:
    """One feature's term in the log-odds: ``weight * (value - mean) / deviation``.

    Attributes:
        feature: Name of the feature, see `aladin_network.calibration.features`.
        mean: Mean of the values that it was fitted on.
        deviation: Standard deviation of these values; positive.
        weight: Fitted weight.
    """

    feature: Feature
    mean: float
    deviation: float
    weight: float


@dataclass(frozen=True, kw_only=True)
class LogisticModel:
    """Log-odds that are linear in standardised features.

    Attributes:
        intercept: Log-odds when every feature has its mean.
        terms: One term per feature.
    """

    intercept: float
    terms: list[Term]

    def probability(self, features: Mapping[Feature, NDArray[np.float64]]) -> NDArray[np.float64]:
        """Return the probability of each row.

        Args:
            features: (n,) values by name; others than those of the terms are not looked at.

        Returns:
            (n,) float64, 0 to 1.
        """
        return probability_of_all([self], features)

    @cached_property
    def linear(self) -> tuple[NDArray[np.float64], float]:
        """Factors (terms,) of the raw values, and the log-odds at the value 0."""
        factors = np.array([term.weight / term.deviation for term in self.terms])
        means = np.array([term.mean for term in self.terms])
        return factors, self.intercept - float(factors @ means)


def probability_of_all(
    models: Sequence[LogisticModel], features: Mapping[Feature, NDArray[np.float64]]
) -> NDArray[np.float64]:
    """Return the probability of each row, given models of it against alternatives.

    Each model tells the rows from one alternative; all alternatives are equally likely. The odds
    against a row are then the mean of those by each model.

    Args:
        models: At least one.
        features: (n,) values by name; others than those of the terms are not looked at.

    Returns:
        (n,) float64, 0 to 1.
    """
    rows = len(next(iter(features.values())))
    against = np.empty((len(models), rows))
    for place, model in enumerate(models):
        factors, rest = model.linear
        values = np.array([features[term.feature] for term in model.terms])
        against[place] = -(factors @ values.reshape(len(model.terms), rows) + rest)
    log_odds = np.log(len(models)) - np.logaddexp.reduce(against, axis=0)
    # Written as a hyperbolic tangent, so that no exponential overflows.
    return 0.5 * (1 + np.tanh(0.5 * log_odds))
