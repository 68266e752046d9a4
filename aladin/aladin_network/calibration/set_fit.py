"""Fitting of prediction sets, and their cover and size on queries that they were not fitted on."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from aladin_network.calibration.examples import AskedQuery, Examples
from aladin_network.calibration.features import POOL, LogisticModel, hit_features
from aladin_network.calibration.logistic_fit import fit_logistic
from aladin_network.calibration.measures import SetFigures
from aladin_network.calibration.sets import PredictionSets, conformal_place, fit_sets
from aladin_network.errors import InputError
from aladin_network.scoring.fusion import DirectionFusion

# Confidence of the reported figures.
REPORTED = 0.9


class RightAnswersFound(NamedTuple):
    """What queries with a match find among their candidates.

    Attributes:
        own: (queries,) highest probability of a right answer, or -inf if there is none.
        ranks: (queries,) its place in the order of the hits, from 0; inf if there is none.
        others: (queries, POOL) probabilities of all candidates; -inf for those that are missing.
        photos: (queries,) int64.
    """

    own: NDArray[np.float64]
    ranks: NDArray[np.float64]
    others: NDArray[np.float64]
    photos: NDArray[np.int64]

    def take(self, places: NDArray[np.bool_]) -> RightAnswersFound:
        """Return some of the queries."""
        own, ranks, others, photos = self
        return RightAnswersFound(own[places], ranks[places], others[places], photos[places])


def find_right_answers(
    queries: Sequence[AskedQuery], model: LogisticModel, fusion: DirectionFusion | None
) -> RightAnswersFound:
    """Judge the candidates of the queries with a match.

    Args:
        queries: Queries, of which at least one has a match.
        model: Model of whether a hit is right.
        fusion: Orders the hits, or None for the first stage's order and its scores alone.
    """
    asked = [query for query in queries if query.has_match]
    own, ranks = np.full(len(asked), -np.inf), np.full(len(asked), np.inf)
    others = np.full((len(asked), POOL), -np.inf)
    for place, query in enumerate(asked):
        pool, right = query.candidates.take(slice(POOL)), query.right[:POOL]
        scores = pool.match
        if fusion is None or pool.align is None:
            pool = pool.without_alignment()
        else:
            scores = fusion.combine(pool.align, pool.match)
        of_pool = model.probability(hit_features(pool, pool))
        others[place, : len(of_pool)] = of_pool
        if right.any():
            own[place] = of_pool[right].max()
            ranks[place] = np.flatnonzero(right[np.argsort(-scores, kind="stable")])[0]
    photos = np.array([query.photo for query in asked], dtype=np.int64)
    return RightAnswersFound(own, ranks, others, photos)


def measure_sets(fitted: RightAnswersFound, judged: RightAnswersFound) -> SetFigures | None:
    """Measure sets of `REPORTED` confidence, beside as many hits for every query.

    Args:
        fitted: Queries that the threshold and the fixed number of hits are fitted to.
        judged: Other queries.

    Returns:
        None if the fitted queries support no sets of this confidence.
    """
    sets = fit_sets(fitted.own, items=0)
    if sets.most < REPORTED:
        return None
    least = sets.threshold(REPORTED)
    cut = float(np.sort(fitted.ranks)[conformal_place(len(fitted.ranks), REPORTED)]) + 1
    return SetFigures(
        confidence=REPORTED,
        cover=float((judged.own >= least).mean()),
        size=float((judged.others >= least).sum(axis=1).mean()),
        fixed_cover=float((judged.ranks < cut).mean()),
        fixed_size=cut,
    )


def measure_by_halves(
    queries: Sequence[AskedQuery], hits: Examples, what: str, fusion: DirectionFusion | None
) -> SetFigures | None:
    """Measure sets on each half of the photos, with model and threshold fitted to the other half.

    Args:
        queries: Queries of one direction.
        hits: Their hits, which the model is fitted to.
        what: Name of the queries in the error message.
        fusion: See `find_right_answers`.

    Returns:
        The mean of both halves; None if a half supports no sets of `REPORTED` confidence.
    """
    photos = np.random.default_rng(0).permutation(np.unique(hits.photos))
    half = photos[: len(photos) // 2]
    measured: list[SetFigures] = []
    for chosen in (half, photos[len(half) :]):
        try:
            model = fit_logistic(hits.take(np.isin(hits.photos, chosen)), what)
        except InputError:  # half of few photos
            return None
        found = find_right_answers(queries, model, fusion)
        is_fitted = np.isin(found.photos, chosen)
        figures = measure_sets(found.take(is_fitted), found.take(~is_fitted))
        if figures is None:
            return None
        measured.append(figures)
    first, second = measured
    return SetFigures(
        confidence=REPORTED,
        cover=(first.cover + second.cover) / 2,
        size=(first.size + second.size) / 2,
        fixed_cover=(first.fixed_cover + second.fixed_cover) / 2,
        fixed_size=(first.fixed_size + second.fixed_size) / 2,
    )


def fit_served_sets(found: RightAnswersFound, items: int | None) -> PredictionSets | None:
    """Fit the sets that searches use, or return None without items or any confidence.

    Args:
        found: All queries with a match, judged by the model that searches use.
        items: Number of items that they searched, or None if unknown.
    """
    sets = None if items is None else fit_sets(found.own, items)
    return sets if sets is not None and sets.least else None
