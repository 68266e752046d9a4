"""Fitting of a calibration, and its evaluation on photos that it was not fitted on."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from aladin_network.calibration.calibration import (
    Calibration,
    DirectionCalibration,
    FittedOn,
)
from aladin_network.calibration.figures import CalibrationFigures
from aladin_network.calibration.judging import (
    PAGE,
    POOL,
    CandidateScores,
    LogisticModel,
    hit_design,
    probability,
    query_design,
)
from aladin_network.errors import InputError
from aladin_network.scoring.fusion import DirectionFusion, Fusion
from aladin_network.types import Direction

OUT_OF_FOLD = "out of fold"
_FOLDS = 5
# Two photos to judge in each of ten folds: fewer are not informative.
LEAST_PHOTOS = 20
_BINS = 10


class AskedQuery(NamedTuple):
    """A query with the candidates that the first stage finds for it.

    Attributes:
        group: Number of the photo that is the query or whose caption is, or of the subject of the
            text; queries of one group are never told apart by a fold.
        candidates: The first stage's best candidates by falling cosine, as many as
            `candidates_kept` returns.
        right: (candidates,) bool; whether each belongs together with the query.
        has_match: Whether any item belongs together with it, among the candidates or not.
        is_short: Whether it is a noun or a noun phrase, for which many photos may be right.
    """

    group: int
    candidates: CandidateScores
    right: NDArray[np.bool_]
    has_match: bool = True
    is_short: bool = False


def candidates_kept(num_candidates: int, right: int) -> int:
    """Return how many candidates are needed to judge a query without its right answers.

    Args:
        num_candidates: Number of candidates that a search passes to its second stage.
        right: Number of right answers.
    """
    return max(num_candidates, POOL) + right


class AskedDirection(NamedTuple):
    """The queries of one direction, with the number of candidates that are re-ranked for each."""

    queries: Sequence[AskedQuery]
    num_candidates: int


class ReportQueries(NamedTuple):
    """Queries of other photos, for the reported figures; `name` is that of their split."""

    name: str
    asked: Mapping[Direction, AskedDirection]


def fit_calibration(
    asked: Mapping[Direction, AskedDirection],
    fusion: Fusion,
    model_id: str,
    fitted_on: FittedOn,
    false_alarms: float,
    report_on: ReportQueries | None = None,
) -> Calibration:
    """Fit the probabilities of both directions.

    Args:
        asked: Queries of both directions.
        fusion: Fusion that orders the candidates, as in searches.
        model_id: SHA-256 of the weights.
        fitted_on: Origin of the queries.
        false_alarms: Share of the queries with a match whose answer may report that there is none;
            it sets the thresholds.
        report_on: Queries of other photos for the figures, or None to use the same photos, each
            judged by models that were fitted without it.

    Raises:
        InputError: If there are too few photos to fit to, or too few that are found.
    """
    if fitted_on.photos < LEAST_PHOTOS:
        raise InputError(
            f"calibration: expected at least {LEAST_PHOTOS} photos with captions, found "
            f"{fitted_on.photos}"
        )

    def fit(direction: Direction) -> DirectionCalibration:
        order = fusion.of(direction)
        cases = _Cases.of(asked[direction], order)
        others = None if report_on is None else _Cases.of(report_on.asked[direction], order)
        return _fit_direction(cases, others, direction, false_alarms)

    return Calibration(
        model_id=model_id,
        text_to_image=fit("text_to_image"),
        image_to_text=fit("image_to_text"),
        fitted_on=fitted_on,
        measured_on=OUT_OF_FOLD if report_on is None else report_on.name,
    )


@dataclass(frozen=True, kw_only=True)
class _Cases:
    """Queries of one direction, each with all items and without its right answers.

    Attributes:
        hits: (hits, columns) of the first pages.
        right: (hits,) bool; whether the hit belongs together with its query.
        query: (hits,) place of its query.
        has_match: (queries,) bool; whether its right answers are among the items.
        weights: (queries,) float64; captions and short texts count the same, and so do queries with
            a match and those without one, of which half have their right answers taken out.
    """

    pools: list[CandidateScores]
    hits: NDArray[np.float64]
    right: NDArray[np.bool_]
    query: NDArray[np.int64]
    has_match: NDArray[np.bool_]
    groups: NDArray[np.int64]
    weights: NDArray[np.float64]

    @classmethod
    def of(cls, asked: AskedDirection, fusion: DirectionFusion) -> _Cases:
        """Describe the queries, and the hits of their first pages."""
        pools: list[CandidateScores] = []
        hits: list[NDArray[np.float64]] = []
        right: list[NDArray[np.bool_]] = []
        kinds: list[tuple[bool, bool, bool]] = []  # short, with a match, taken out
        groups: list[int] = []
        for query in asked.queries:
            for is_there in (True, False) if query.has_match else (False,):
                kept = np.flatnonzero(~query.right | is_there)
                if not len(kept):
                    continue
                found, of_found = query.candidates.take(kept), query.right[kept]
                page = _page(found.take(slice(asked.num_candidates)), fusion)
                pools.append(found.take(slice(POOL)))
                hits.append(hit_design(pools[-1], found.take(page)))
                right.append(of_found[page])
                kinds.append((query.is_short, is_there, query.has_match))
                groups.append(query.group)
        return cls(
            pools=pools,
            hits=np.concatenate(hits),
            right=np.concatenate(right),
            query=np.repeat(np.arange(len(hits)), [len(each) for each in hits]),
            has_match=np.array([is_there for _, is_there, _ in kinds]),
            groups=np.array(groups, dtype=np.int64),
            weights=_weights(kinds),
        )


def _page(found: CandidateScores, fusion: DirectionFusion) -> NDArray[np.int64]:
    """Return the positions of the first page's hits, in its order."""
    if found.align is None:
        return np.arange(min(PAGE, len(found.rows)), dtype=np.int64)
    return np.argsort(-fusion.combine(found.align, found.match), kind="stable")[:PAGE]


def _weights(kinds: Sequence[tuple[bool, bool, bool]]) -> NDArray[np.float64]:
    short, there, known = np.array(kinds, dtype=np.bool_).T
    weights = np.zeros(len(kinds))
    for is_short in (True, False):
        for has_match in (True, False):
            of_kind = (short == is_short) & (there == has_match)
            sorts = [of_kind & known, of_kind & ~known]
            for sort in (filled := [each for each in sorts if each.any()]):
                weights[sort] = 1 / sort.sum() / len(filled)
    return weights * len(kinds) / weights.sum()


def _fit_direction(
    cases: _Cases, others: _Cases | None, what: str, false_alarms: float
) -> DirectionCalibration:
    hit, match = _fit_models(cases, np.ones(len(cases.groups), dtype=np.bool_), what)
    of_match = match.log_odds(_designs(cases, hit))
    below = float(np.quantile(of_match[cases.has_match], false_alarms))
    judged = others or cases
    if others is None:
        of_hits, of_match = np.empty(len(cases.right)), np.empty(len(cases.groups))
        for fold in _folds(cases.groups):
            fold_hit, fold_match = _fit_models(cases, ~fold, what)
            inside = fold[cases.query]
            of_hits[inside] = fold_hit.log_odds(cases.hits[inside])
            of_match[fold] = fold_match.log_odds(_designs(cases, fold_hit, fold))
    else:
        of_hits, of_match = hit.log_odds(others.hits), match.log_odds(_designs(others, hit))
    return DirectionCalibration(
        aligned=cases.pools[0].align is not None,
        hit=hit,
        match=match,
        no_match_below=below,
        figures=_measure(judged, probability(of_hits), of_match, below),
    )


def _designs(
    cases: _Cases, hit: LogisticModel, some: NDArray[np.bool_] | None = None
) -> NDArray[np.float64]:
    """Return (queries, columns) for some queries, or all, whose candidates a model has judged."""
    chosen = range(len(cases.pools)) if some is None else np.flatnonzero(some)
    pools = [cases.pools[place] for place in chosen]
    return np.concatenate([query_design(p, hit.log_odds(hit_design(p, p))) for p in pools])


def _fit_models(
    cases: _Cases, fitted: NDArray[np.bool_], what: str
) -> tuple[LogisticModel, LogisticModel]:
    """Fit the models of a hit and of a match to some of the queries."""
    inside = fitted[cases.query]
    weights = cases.weights[cases.query]
    hit = _fit(cases.hits[inside], cases.right[inside], weights[inside], f"{what}, hits")
    designs = _designs(cases, hit, fitted)
    match = _fit(designs, cases.has_match[fitted], cases.weights[fitted], f"{what}, queries")
    return hit, match


def _fit(
    design: NDArray[np.float64],
    right: NDArray[np.bool_],
    weights: NDArray[np.float64],
    what: str,
) -> LogisticModel:
    from sklearn.linear_model import LogisticRegression
    from sklearn.preprocessing import StandardScaler

    if right.sum() in (0, len(right)):
        raise InputError(
            f"{what}: expected right and wrong ones in every fold, found {right.sum()} right of "
            f"{len(right)}; more photos are needed"
        )
    scaler = StandardScaler().fit(design)
    # This solver is made for few columns, many cases and collinear columns.
    fitted = LogisticRegression(solver="newton-cholesky", max_iter=1000).fit(
        scaler.transform(design), right, weights
    )
    factors = fitted.coef_[0] / scaler.scale_
    return LogisticModel(
        intercept=float(fitted.intercept_[0] - factors @ scaler.mean_), weights=factors.tolist()
    )


def _folds(groups: NDArray[np.int64]) -> Iterator[NDArray[np.bool_]]:
    """Yield the queries of each fold; shuffled, since neighbours in a data set are often alike."""
    from sklearn.model_selection import GroupKFold

    folds = GroupKFold(_FOLDS, shuffle=True, random_state=0)
    for _, judged in folds.split(groups, groups=groups):
        yield np.isin(np.arange(len(groups)), judged)


def _measure(
    cases: _Cases,
    of_hits: NDArray[np.float64],
    of_match: NDArray[np.float64],
    below: float,
) -> CalibrationFigures:
    from sklearn.metrics import roc_auc_score

    there = cases.has_match
    return CalibrationFigures(
        ece=calibration_error(of_hits, cases.right, cases.weights[cases.query]),
        auroc=float(roc_auc_score(there, of_match, sample_weight=cases.weights)),
        false_alarms=float((of_match[there] < below).mean()),
        detected=float(np.average(of_match[~there] < below, weights=cases.weights[~there])),
    )


def calibration_error(
    probabilities: NDArray[np.float64], right: NDArray[np.bool_], weights: NDArray[np.float64]
) -> float:
    """Return the expected calibration error, over bins of equal mass.

    It is the mean distance of a bin's mean probability from its share of right cases, bins weighted
    by their mass; equal probabilities share a bin.
    """
    share = weights / weights.sum()
    _, level = np.unique(probabilities, return_inverse=True)
    mass = np.bincount(level, weights=share)
    middle = np.cumsum(mass) - mass / 2
    number = np.minimum((middle * _BINS).astype(np.int64), _BINS - 1)[level]
    apart = np.bincount(number, weights=share * (probabilities - right), minlength=_BINS)
    return float(np.abs(apart).sum())
