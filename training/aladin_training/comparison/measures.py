"""What two runs are compared by: recalls, or how far their scores part matches from the rest."""

from __future__ import annotations

from typing import Literal, get_args

from torch import Tensor

from aladin_network.scoring.bootstrap import QueryGains, recall_gains
from aladin_training.comparison.evaluation import RunEvaluation

# rsum: sum of the six recalls, in points. r1: R@1, mean of both directions, in points. md: DBL's
# mean difference, and margin: mean of a query's matches minus its hardest negative, mean over the
# queries of each direction and of both directions; the latter two in the scores' own unit.
Measure = Literal["rsum", "r1", "md", "margin"]

MEASURES: tuple[Measure, ...] = get_args(Measure)

TITLES: dict[Measure, str] = {"rsum": "rsum", "r1": "R@1", "md": "MD", "margin": "margin"}


def decimals(measure: Measure) -> int:
    """Return with how many decimals a measure is written."""
    return 1 if measure in ("rsum", "r1") else 3


def has_measure(evaluation: RunEvaluation, score: str, measure: Measure) -> bool:
    """Tell whether an evaluation has a measure of a score.

    Rankings of several heads together have no scores of their own.
    """
    known = evaluation.ranks if measure in ("rsum", "r1") else evaluation.separation
    return score in known


def gains(
    measure: Measure,
    ours: RunEvaluation,
    our_score: str,
    theirs: RunEvaluation,
    their_score: str,
) -> QueryGains:
    """Return how far one run is ahead at each query; the means of both directions add up."""
    if measure in ("rsum", "r1"):
        ranks = ours.ranks[our_score], theirs.ranks[their_score]
        if measure == "rsum":
            return recall_gains(*ranks)
        of_texts, of_images = recall_gains(*ranks, cutoffs=(1,))
        return QueryGains(of_texts / 2, of_images / 2)
    own, other = _apart(measure, ours, our_score), _apart(measure, theirs, their_score)
    return QueryGains(own[0] - other[0], own[1] - other[1])


def _apart(measure: Measure, evaluation: RunEvaluation, score: str) -> tuple[Tensor, Tensor]:
    """Return what each caption and each photo adds to a measure of separation."""
    texts, images = evaluation.separation[score]
    if measure == "margin":
        return (texts.positive - texts.hardest) / 2, (images.positive - images.hardest) / 2
    # The mean over all pairs that do not match is that over texts. Resampling photos also changes
    # the candidates: to first order, by the mean over all rows minus that of the photo's row.
    return texts.positive - texts.negative, images.negative.mean() - images.negative
