"""Fitting of a calibration, and its evaluation on photos that it was not fitted on."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from aladin_network.calibration.calibration import (
    Calibration,
    DirectionCalibration,
    ProbabilityModels,
    ShortTexts,
)
from aladin_network.calibration.density import FittedDensity, fit_density
from aladin_network.calibration.examples import (
    KINDS,
    AskedQuery,
    Examples,
    StageExamples,
    make_examples,
)
from aladin_network.calibration.features import POOL, probability_of_all
from aladin_network.calibration.fitted_on import FittedOn, TextLengths
from aladin_network.calibration.logistic_fit import (
    LEAST_PHOTOS,
    fit_kinds,
    fit_logistic,
    out_of_fold,
)
from aladin_network.calibration.measures import (
    AurocComparison,
    CalibrationFigures,
    DirectionFigures,
    Estimate,
    NoMatchFigures,
    NoMatchKind,
    ProbabilityFigures,
    compare_auroc,
    reliability,
)
from aladin_network.errors import InputError
from aladin_network.scoring.fusion import DirectionFusion, Fusion
from aladin_network.types import Direction, NullProgress, Progress

logger = logging.getLogger(__name__)

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


class AskedShortTexts(NamedTuple):
    """Short text queries, such as nouns and noun phrases; many photos may be right for each.

    Attributes:
        asked: The queries; their `photo` is any number that those about the same thing share.
        lengths: Range of their lengths.
    """

    asked: AskedDirection
    lengths: TextLengths


class ReportQueries(NamedTuple):
    """Queries of other photos, for the reported figures.

    Attributes:
        name: Name of their split.
        asked: Queries by direction.
        short_texts: Short text queries, or None if there are none.
    """

    name: str
    asked: Mapping[Direction, AskedDirection]
    short_texts: AskedShortTexts | None = None


def fit_calibration(
    asked: Mapping[Direction, AskedDirection],
    fusion: Fusion,
    model_id: str,
    fitted_on: FittedOn,
    false_alarms: float,
    report_on: ReportQueries | None = None,
    progress: Progress | None = None,
    short_texts: AskedShortTexts | None = None,
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
        short_texts: Short text queries, which get models of their own; or None if there are none.
            If they are too few, or all alike, answers to such queries are not judged.

    Raises:
        InputError: If there are too few photos to fit to, or too few that are found.
    """
    if fitted_on.photos < LEAST_PHOTOS:
        raise InputError(
            f"calibration: expected at least {LEAST_PHOTOS} photos with captions, found "
            f"{fitted_on.photos}"
        )
    progress = progress or NullProgress()
    progress.start(4 * (len(_DIRECTIONS) + (short_texts is not None)), "models")
    reports = {} if report_on is None else report_on.asked
    fits = {
        direction: _fit_direction(
            asked[direction],
            reports.get(direction),
            direction,
            fusion.of(direction),
            fitted_on.prior,
            false_alarms,
            progress,
        )
        for direction in _DIRECTIONS
    }
    both = fits["text_to_image"].comparison.mean_with(fits["image_to_text"].comparison)
    judged = asked if report_on is None else report_on.asked
    return Calibration(
        model_id=model_id,
        text_to_image=fits["text_to_image"].models,
        image_to_text=fits["image_to_text"].models,
        pool=POOL,
        fitted_on=fitted_on,
        figures=CalibrationFigures(
            measured_on=OUT_OF_FOLD if report_on is None else report_on.name,
            photos=len({query.photo for query in judged["image_to_text"].queries}),
            auroc=both.auroc,
            auroc_gain=both.gain,
            text_to_image=fits["text_to_image"].figures,
            image_to_text=fits["image_to_text"].figures,
        ),
        short_texts=_fit_short_texts(
            short_texts, report_on, fusion, fitted_on.prior, false_alarms, progress
        ),
    )


class _FittedDirection(NamedTuple):
    """Models of one direction, with their figures; `comparison` is of both stages' scores."""

    models: DirectionCalibration
    figures: DirectionFigures
    comparison: AurocComparison


def _fit_direction(
    asked: AskedDirection,
    report_on: AskedDirection | None,
    what: str,
    fusion: DirectionFusion,
    prior: float,
    false_alarms: float,
    progress: Progress,
) -> _FittedDirection:
    """Fit models to queries, and measure them on others, or out of fold."""
    fitted: list[ProbabilityModels] = []
    measured: list[ProbabilityFigures] = []
    comparisons: list[AurocComparison] = []
    density, novelty = _fit_density(asked.queries) or (None, None)
    for order in (fusion, None):
        examples = make_examples(*asked, prior, order, novelty)
        models = _fit(examples, what, false_alarms, progress)
        if report_on is None:
            of_hits = out_of_fold(
                examples.hits, f"{what}, hits", lambda some, name: [fit_logistic(some, name)]
            )
            of_match = out_of_fold(
                examples.match,
                f"{what}, queries",
                lambda some, name: list(fit_kinds(some, name).values()),
            )
        else:
            of_others = None if density is None else density.novelty(_embeddings(report_on.queries))
            examples = make_examples(*report_on, prior, order, of_others)
            of_hits = models.hit.probability(examples.hits.features)
            of_match = probability_of_all(models.match_models, examples.match.features)
        comparisons.append(compare_with_thresholds(examples, of_match))
        fitted.append(models)
        measured.append(
            measure(examples, of_hits, of_match, comparisons[-1], models.no_match_below)
        )
    return _FittedDirection(
        DirectionCalibration(aligned=fitted[0], matching=fitted[1], density=density),
        DirectionFigures(aligned=measured[0], matching=measured[1]),
        comparisons[0],
    )


def _fit_density(queries: Sequence[AskedQuery]) -> FittedDensity | None:
    """Fit the density of the queries with a match, if there are others to tell from them."""
    if all(query.kind == "hard" for query in queries):
        return None
    photos = np.array([query.photo for query in queries], dtype=np.int64)
    known = np.array([query.has_match for query in queries], dtype=np.bool_)
    return fit_density(_embeddings(queries), photos, known)


def _embeddings(queries: Sequence[AskedQuery]) -> NDArray[np.float32]:
    """Return (queries, d_match)."""
    return np.stack([query.embedding for query in queries if query.embedding is not None])


def _fit_short_texts(
    short_texts: AskedShortTexts | None,
    report_on: ReportQueries | None,
    fusion: Fusion,
    prior: float,
    false_alarms: float,
    progress: Progress,
) -> ShortTexts | None:
    if short_texts is None or (report_on is not None and report_on.short_texts is None):
        return None
    others = None if report_on is None else report_on.short_texts
    try:
        fit = _fit_direction(
            short_texts.asked,
            None if others is None else others.asked,
            "short texts",
            fusion.text_to_image,
            prior,
            false_alarms,
            progress,
        )
    except InputError as error:
        logger.warning("no probabilities for short texts: %s", error)
        return None
    return ShortTexts(
        lengths=short_texts.lengths,
        texts=len(short_texts.asked.queries),
        text_to_image=fit.models,
        figures=fit.figures,
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
        {"probability": of_match, **examples.thresholds},
        match.right,
        match.photos,
        match.weights,
    )


def _by_kind(match: Examples, of_match: NDArray[np.float64]) -> dict[NoMatchKind, Estimate]:
    """Return the AUROC of each kind of queries without a match, if there are several."""
    found: dict[NoMatchKind, Estimate] = {}
    for kind in match.several_kinds:
        some = (match.kinds < 0) | (match.kinds == KINDS.index(kind))
        compared = compare_auroc({kind: of_match[some]}, match.right[some], match.photos[some])
        found[kind] = compared.auroc[kind]
    return found


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
            detected=float(
                np.average(
                    of_match[~match.right] < no_match_below, weights=match.weights[~match.right]
                )
            ),
            kinds={
                kind: float((of_match[match.kinds == KINDS.index(kind)] < no_match_below).mean())
                for kind in match.several_kinds
            },
        ),
        auroc=comparison.auroc,
        auroc_gain=comparison.gain,
        kinds=_by_kind(match, of_match),
    )


def _fit(
    examples: StageExamples, what: str, false_alarms: float, progress: Progress
) -> ProbabilityModels:
    hit = fit_logistic(examples.hits, f"{what}, hits")
    progress.advance()
    kinds = fit_kinds(examples.match, f"{what}, queries")
    progress.advance()
    of_match = probability_of_all(list(kinds.values()), examples.match.features)
    threshold = float(np.quantile(of_match[examples.match.right], false_alarms))
    match = kinds.pop("hard")
    return ProbabilityModels(hit=hit, match=match, no_match_below=threshold, unlike=kinds)
