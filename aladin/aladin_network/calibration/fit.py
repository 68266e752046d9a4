"""Fitting of a calibration, and its evaluation on photos that it was not fitted on."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from aladin_network.calibration.calibration import (
    Calibration,
    DirectionCalibration,
    FittedOn,
    ProbabilityModels,
)
from aladin_network.calibration.features import POOL
from aladin_network.calibration.logistic_fit import (
    LEAST_PHOTOS,
    AskedQuery,
    StageExamples,
    fit_logistic,
    make_examples,
    out_of_fold,
)
from aladin_network.calibration.measures import (
    AurocComparison,
    CalibrationFigures,
    DirectionFigures,
    NoMatchFigures,
    ProbabilityFigures,
    compare_auroc,
    reliability,
)
from aladin_network.errors import InputError
from aladin_network.scoring.fusion import Fusion
from aladin_network.types import Direction, NullProgress, Progress

OUT_OF_FOLD = "out of fold"
_DIRECTIONS: tuple[Direction, Direction] = ("text_to_image", "image_to_text")


class AskedDirection(NamedTuple):
    """The queries of one direction.

    Attributes:
        queries: Queries with their candidates.
        num_candidates: Number of candidates that a search passes to the second stage.
    """

    queries: Sequence[AskedQuery]
    num_candidates: int


class ReportQueries(NamedTuple):
    """Queries of other photos, for the reported figures.

    Attributes:
        name: Name of their split.
        asked: Queries by direction.
    """

    name: str
    asked: Mapping[Direction, AskedDirection]


def fit_calibration(
    asked: Mapping[Direction, AskedDirection],
    fusion: Fusion,
    model_id: str,
    fitted_on: FittedOn,
    false_alarms: float,
    report_on: ReportQueries | None = None,
    progress: Progress | None = None,
) -> Calibration:
    """Fit the probabilities of both directions.

    Args:
        asked: Queries of both directions.
        fusion: Fusion that orders the candidates, as in searches.
        model_id: SHA-256 of the weights.
        fitted_on: Origin of the queries; its prior is that of the fit.
        false_alarms: Share of the queries with a match whose answer may report that there is none;
            it sets the thresholds.
        report_on: Queries of other photos for the figures, or None to use the same photos, each
            judged by models that were fitted without it.
        progress: Receives the number of fitted models.

    Raises:
        InputError: If there are too few photos to fit to, or too few that are found.
    """
    if fitted_on.photos < LEAST_PHOTOS:
        raise InputError(
            f"calibration: expected at least {LEAST_PHOTOS} photos with captions, found "
            f"{fitted_on.photos}"
        )
    progress = progress or NullProgress()
    progress.start(4 * len(_DIRECTIONS), "models")
    models: dict[Direction, DirectionCalibration] = {}
    figures: dict[Direction, DirectionFigures] = {}
    comparisons: list[AurocComparison] = []  # of both stages' scores
    for direction in _DIRECTIONS:
        fitted: list[ProbabilityModels] = []
        measured: list[ProbabilityFigures] = []
        for order in (fusion.of(direction), None):
            examples = make_examples(*asked[direction], fitted_on.prior, order)
            models_of_order = _fit(examples, direction, false_alarms, progress)
            if report_on is None:
                of_hits = out_of_fold(examples.hits, f"{direction}, hits")
                of_match = out_of_fold(examples.match, f"{direction}, queries")
            else:
                examples = make_examples(*report_on.asked[direction], fitted_on.prior, order)
                of_hits = models_of_order.hit.probability(examples.hits.features)
                of_match = models_of_order.match.probability(examples.match.features)
            comparison = compare_with_thresholds(examples, of_match)
            if order is not None:
                comparisons.append(comparison)
            fitted.append(models_of_order)
            measured.append(
                measure(examples, of_hits, of_match, comparison, models_of_order.no_match_below)
            )
        models[direction] = DirectionCalibration(aligned=fitted[0], matching=fitted[1])
        figures[direction] = DirectionFigures(aligned=measured[0], matching=measured[1])
    both = comparisons[0].mean_with(comparisons[1])
    judged = asked if report_on is None else report_on.asked
    return Calibration(
        model_id=model_id,
        text_to_image=models["text_to_image"],
        image_to_text=models["image_to_text"],
        pool=POOL,
        fitted_on=fitted_on,
        figures=CalibrationFigures(
            measured_on=OUT_OF_FOLD if report_on is None else report_on.name,
            photos=len({query.photo for query in judged["image_to_text"].queries}),
            auroc=both.auroc,
            auroc_gain=both.gain,
            text_to_image=figures["text_to_image"],
            image_to_text=figures["image_to_text"],
        ),
    )


def compare_with_thresholds(
    examples: StageExamples, of_match: NDArray[np.float64]
) -> AurocComparison:
    """Compare how well the match probability and plain thresholds detect a match.

    Args:
        examples: Judged examples.
        of_match: (queries,) their probabilities.
    """
    match = examples.match
    return compare_auroc(
        {"probability": of_match, **examples.thresholds}, match.right, match.photos
    )


def measure(
    examples: StageExamples,
    of_hits: NDArray[np.float64],
    of_match: NDArray[np.float64],
    comparison: AurocComparison,
    no_match_below: float,
) -> ProbabilityFigures:
    """Measure probabilities against the right answers.

    Args:
        examples: Judged examples.
        of_hits: (hits,) their probabilities.
        of_match: (queries,) theirs.
        comparison: Comparison of `of_match` with thresholds.
        no_match_below: Lowest match probability of an answer that claims a match.
    """
    hits, match, first = examples.hits, examples.match, examples.first
    return ProbabilityFigures(
        hits=reliability(of_hits, hits.right, hits.weights),
        best_hit=reliability(of_hits[first], hits.right[first], hits.weights[first]),
        match=reliability(of_match, match.right, match.weights),
        no_match=NoMatchFigures(
            below=no_match_below,
            false_alarms=float((of_match[match.right] < no_match_below).mean()),
            detected=float((of_match[~match.right] < no_match_below).mean()),
        ),
        auroc=comparison.auroc,
        auroc_gain=comparison.gain,
    )


def _fit(
    examples: StageExamples, direction: Direction, false_alarms: float, progress: Progress
) -> ProbabilityModels:
    hit = fit_logistic(examples.hits, f"{direction}, hits")
    progress.advance()
    match = fit_logistic(examples.match, f"{direction}, queries")
    progress.advance()
    with_match = match.probability(examples.match.features)[examples.match.right]
    threshold = float(np.quantile(with_match, false_alarms))
    return ProbabilityModels(hit=hit, match=match, no_match_below=threshold)
