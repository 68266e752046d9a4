"""What two runs are compared by: recalls, or how far their scores part matches from the rest."""

from __future__ import annotations

from typing import Literal, get_args

from torch import Tensor

from aladin_network.scoring.bootstrap import QueryGains, recall_gains
from aladin_training.comparison.evaluation import RunEvaluation

# rsum: sum of the six recalls, in points. r1_r5: sum of R@1 and R@5 of both directions, in points.
# r1: R@1, mean of both directions, in points. md: DBL's mean difference, in the scores' own unit.
Measure = Literal["rsum", "r1_r5", "r1", "md"]

MEASURES: tuple[Measure, ...] = get_args(Measure)

TITLES: dict[Measure, str] = {"rsum": "rsum", "r1_r5": "R@1 + R@5", "r1": "R@1", "md": "MD"}

# Recalls that a measure adds up, and the weight of each.
_RECALLS: dict[Measure, tuple[tuple[int, ...], float]] = {
    "rsum": ((1, 5, 10), 1.0),
    "r1_r5": ((1, 5), 1.0),
    "r1": ((1,), 0.5),
}


def decimals(measure: Measure) -> int:
    """Return with how many decimals a measure is written."""
    return 1 if measure in _RECALLS else 3


def has_measure(evaluation: RunEvaluation, score: str, measure: Measure) -> bool:
    """Tell whether an evaluation has a measure of a score.

    Rankings of several heads together have no scores of their own.
    """
    return score in (evaluation.ranks if measure in _RECALLS else evaluation.separation)


def gains(
    measure: Measure, ours: RunEvaluation, our_score: str, theirs: RunEvaluation, their_score: str
) -> QueryGains:
    """Return how far one run is ahead at each query; the means of both directions add up."""
    if measure in _RECALLS:
        cutoffs, weight = _RECALLS[measure]
        found = recall_gains(ours.ranks[our_score], theirs.ranks[their_score], cutoffs)
        return QueryGains(*(weight * each for each in found))
    own, other = _apart(ours, our_score), _apart(theirs, their_score)
    return QueryGains(own[0] - other[0], own[1] - other[1])


def _apart(evaluation: RunEvaluation, score: str) -> tuple[Tensor, Tensor]:
    """Return what each caption and each photo adds to the mean difference."""
    texts, images = evaluation.separation[score]
    # The mean over all pairs that do not match is that over texts. Resampling photos also changes
    # the candidates: to first order, by the mean over all rows minus that of the photo's row.
    return texts.positive - texts.negative, images.negative.mean() - images.negative
