"""The scores that an answer is judged by, and the logistic models that judge it.

Fitting and searching use the same functions; they require NumPy only.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

# Candidates by which an answer is judged: the first stage's best. It is also the default number of
# candidates that a search passes to the second stage.
POOL = 100
# Hits of a query that are judged in a fit: the first page.
PAGE = 10


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


class Judgement(NamedTuple):
    """What a calibration says of an answer.

    Attributes:
        probabilities: (hits,) float64, that each hit belongs together with the query.
    """

    no_match: bool
    probabilities: NDArray[np.float64]


@dataclass(frozen=True, kw_only=True)
class LogisticModel:
    """Log-odds that are linear in the columns of a design matrix."""

    intercept: float
    weights: list[float]

    def log_odds(self, design: NDArray[np.float64]) -> NDArray[np.float64]:
        """Return (n,) log-odds of (n, columns)."""
        return design @ np.asarray(self.weights) + self.intercept


def hit_design(pool: CandidateScores, hits: CandidateScores) -> NDArray[np.float64]:
    """Describe hits by their scores, and by how these stand out from the pool: (hits, columns)."""
    gap = _gap(pool, hits)
    scores = [hits.match] if hits.align is None else [hits.match, hits.align]
    return _with_length([*scores, gap, gap >= 0], hits.words)


def query_design(pool: CandidateScores, hit_log_odds: NDArray[np.float64]) -> NDArray[np.float64]:
    """Describe a query by how likely any of its best candidates is right: (1, columns)."""
    likely = np.sort(hit_log_odds)[-PAGE:]
    # Log-odds that any of them is right, if they were independent of each other.
    none = -np.logaddexp(0, likely).sum()
    some = np.log(-np.expm1(min(none, -1e-12))) - none
    gap = _gap(pool, pool)
    best = int(gap.argmax())
    return _with_length([np.array([some]), gap[best : best + 1]], pool.words[best : best + 1])


def probability(log_odds: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return probabilities; written as a hyperbolic tangent, so that no exponential overflows."""
    return 0.5 * (1 + np.tanh(0.5 * log_odds))


def _gap(pool: CandidateScores, hits: CandidateScores) -> NDArray[np.float64]:
    """Return (hits,) distances of the last stage's scores from the best of the pool's others."""
    of_pool = pool.match if pool.align is None or hits.align is None else pool.align
    of_hits = hits.match if pool.align is None or hits.align is None else hits.align
    best = int(of_pool.argmax())
    others = np.delete(of_pool, best)
    # A pool of one item has no runner-up: it is as good as itself.
    runner_up = others.max() if len(others) else of_pool[best]
    return np.where(
        hits.rows == pool.rows[best], of_hits - runner_up, of_hits - of_pool[best]
    ).astype(np.float64)


def _with_length(
    signals: list[NDArray[np.generic]], words: NDArray[np.int64]
) -> NDArray[np.float64]:
    """Add the length of the texts: the weight of every signal is linear in its logarithm."""
    log_words = np.log(np.maximum(words, 1))
    columns = np.stack([each.astype(np.float64) for each in signals], axis=1)
    return np.concatenate(
        [columns, columns * log_words[:, None], log_words[:, None], log_words[:, None] ** 2], axis=1
    )
