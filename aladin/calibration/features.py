"""What probabilities are computed from; the fit and the search make it here, both alike."""

from __future__ import annotations

from typing import Literal

import numpy as np
from numpy.typing import NDArray

from aladin.calibration.scores import CandidateScores

Feature = Literal[
    "match",
    "match_gap",
    "match_mean",
    "match_spread",
    "per_word",
    "per_word_gap",
    "per_word_mean",
    "per_word_spread",
    "log_words",
]
Features = dict[Feature, NDArray[np.float64]]


def hit_features(pool: CandidateScores, hits: CandidateScores) -> Features:
    """Describe hits by their scores, and by how these stand out from the query's pool.

    Args:
        pool: the first stage's best for the query, at least one, in its order.
        hits: any items, those of the pool included; with alignment scores if the pool has them.

    Returns:
        (hits,) values by name; those of the alignment are missing where there is no such score.
    """
    match = hits.match.astype(np.float64)
    features: Features = {
        "match": match,
        "match_gap": match - _best_other(pool.match, pool.rows, hits.rows),
        "match_mean": np.full(len(match), pool.match.mean(dtype=np.float64)),
        "match_spread": np.full(len(match), pool.match.std(dtype=np.float64)),
        "log_words": np.log(np.maximum(hits.words, 1)),
    }
    if hits.align is not None and pool.align is not None:
        per_word, of_pool = _per_word(hits.align, hits.words), _per_word(pool.align, pool.words)
        features |= {
            "per_word": per_word,
            "per_word_gap": per_word - _best_other(of_pool, pool.rows, hits.rows),
            "per_word_mean": np.full(len(match), of_pool.mean()),
            "per_word_spread": np.full(len(match), of_pool.std()),
        }
    return features


def _per_word(align: NDArray[np.float32], words: NDArray[np.int64]) -> NDArray[np.float64]:
    return align.astype(np.float64) / np.maximum(words, 1)


def _best_other(
    scores: NDArray[np.float32] | NDArray[np.float64],
    rows: NDArray[np.int64],
    of_rows: NDArray[np.int64],
) -> NDArray[np.float64]:
    """Return for each row the best score of the pool's other items; where none is, its own."""
    same = rows[np.newaxis] == of_rows[:, np.newaxis]  # (hits, pool)
    others = np.where(same, -np.inf, scores.astype(np.float64)).max(axis=1)
    return np.where(np.isinf(others), scores[0], others)


def query_features(pool: CandidateScores) -> Features:
    """Describe a query by the scores of its pool.

    Args:
        pool: the first stage's best for the query, at least one, in its order.

    Returns:
        (1,) values by name, those of the pool's best hit; each feature that names no alignment is
        that of the best cosine, the others that of the best alignment per word.
    """
    best = int(np.argmax(pool.match))
    features = hit_features(pool, pool)
    if pool.align is None:
        return {name: values[[best]] for name, values in features.items()}
    aligned = int(np.argmax(features["per_word"]))
    return {
        name: values[[aligned if name.startswith("per_word") else best]]
        for name, values in features.items()
    }
