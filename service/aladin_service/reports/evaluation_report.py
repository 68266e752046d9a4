"""An evaluation and its candidate curve as JSON data and tables."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from rich.box import SIMPLE_HEAD
from rich.table import Table

from aladin_index.measure.curve_points import (
    RULES,
    CandidateCurve,
    DirectionQuality,
    Estimate,
    Quality,
    Rule,
    SearchTime,
)
from aladin_network.scoring.bootstrap import Interval
from aladin_network.scoring.metrics import DirectionMetrics, RetrievalMetrics
from aladin_service.measure.evaluate import SystemEvaluation
from aladin_service.reports.tables import MetricsRow, metrics_table

_TITLES: dict[Rule, str] = {
    "fitted": "two-stage, fusion as fitted",
    "papers": "two-stage, fusion 1 (the papers' rule)",
}


def evaluation_data(evaluation: SystemEvaluation) -> dict[str, Any]:
    """Return the data that ``--json`` prints: percent, ranks counted from 1, milliseconds."""
    data: dict[str, Any] = {name: metrics_data(each) for name, each in evaluation.metrics.items()}
    for name, ranks in evaluation.cross_ranks.items():
        data[name]["mean_difference"] = _rounded(evaluation.mean_difference[name])
        data[name]["cross_rank"] = {"median": ranks.median, "mean": _rounded(ranks.mean)}
    if evaluation.folded is not None:
        data["folded"] = {
            "folds": evaluation.folded.folds,
            **{name: metrics_data(each) for name, each in evaluation.folded.metrics.items()},
        }
    if evaluation.correction_gain is not None:
        data["corrected_fused_minus_fused"] = _interval_data(evaluation.correction_gain)
    if evaluation.index is not None:
        served, gain = evaluation.index.served, evaluation.index.gain
        directions = {
            "text_to_image": served.text_to_image,
            "image_to_text": served.image_to_text,
        }
        data["two_stage_minus_matching"] = _interval_data(gain)
        data["agreement"] = {
            name: _rounded(100 * report.agreement) for name, report in directions.items()
        }
        data["median_ms"] = {
            name: _rounded(report.median_ms) for name, report in directions.items()
        }
    return data


def evaluation_table(title: str, evaluation: SystemEvaluation) -> Table:
    """Build a table of the metrics of an evaluation."""
    ms = None
    if evaluation.index is not None:
        served = evaluation.index.served
        ms = (served.text_to_image.median_ms + served.image_to_text.median_ms) / 2
    rows = [
        MetricsRow(name, metrics, ms if name == "two_stage" else None)
        for name, metrics in evaluation.metrics.items()
    ]
    if evaluation.folded is not None:
        rows += [
            MetricsRow(f"{name}, {evaluation.folded.folds} folds", metrics)
            for name, metrics in evaluation.folded.metrics.items()
        ]
    return metrics_table(title, rows)


def evaluation_lines(evaluation: SystemEvaluation) -> Iterator[str]:
    """Describe what has no table column: the matching pairs and, if given, the index."""
    for name, ranks in evaluation.cross_ranks.items():
        yield (
            f"{name}: mean difference of positive pairs to others "
            f"{evaluation.mean_difference[name]:.3f}, "
            f"cross-retrieval rank median {ranks.median:.0f}, mean {ranks.mean:.1f}"
        )
    if evaluation.correction_gain is not None:
        yield f"corrected_fused minus fused: {_interval_words(evaluation.correction_gain)}"
    if evaluation.index is None:
        return
    served = evaluation.index.served
    yield f"two_stage minus matching: {_interval_words(evaluation.index.gain)}"
    yield (
        "top 10 agrees with the exhaustive order: "
        f"text to image {100 * served.text_to_image.agreement:.1f} %, "
        f"image to text {100 * served.image_to_text.agreement:.1f} %"
    )


def _interval_data(gain: Interval) -> dict[str, float]:
    return {
        "rsum": _rounded(gain.difference),
        "low": _rounded(gain.low),
        "high": _rounded(gain.high),
    }


def _interval_words(gain: Interval) -> str:
    return f"{gain.difference:+.1f} rsum, 95 % interval {gain.low:+.1f} to {gain.high:+.1f}"


def metrics_data(metrics: RetrievalMetrics) -> dict[str, Any]:
    """Return the metrics of one system as JSON data."""
    return {
        "text_to_image": _direction_data(metrics.text_to_image),
        "image_to_text": _direction_data(metrics.image_to_text),
        "rsum": _rounded(metrics.rsum),
    }


def _direction_data(direction: DirectionMetrics) -> dict[str, float]:
    return {
        "r1": _rounded(direction.r1),
        "r5": _rounded(direction.r5),
        "r10": _rounded(direction.r10),
        "median_rank": direction.median_rank,
        "mean_rank": _rounded(direction.mean_rank),
    }


def _rounded(value: float) -> float:
    """Round to the precision that 100,000 queries could resolve."""
    return round(value, 3)


def curve_data(curve: CandidateCurve) -> dict[str, Any]:
    """Return the curve as JSON data: recalls, gains and agreements in percent, milliseconds.

    The first point, one candidate, is matching alone; the last, all items, is the exhaustive
    order. ``*_gain`` is paired: over the same draws of photos, less matching alone.
    """
    return {
        "points": [
            {
                "candidates": point.candidates,
                "fitted": _quality_data(point.fitted),
                "papers": _quality_data(point.papers),
                "ms": {
                    "text_to_image": _time_data(point.times.text_to_image),
                    "image_to_text": _time_data(point.times.image_to_text),
                },
            }
            for point in curve.points
        ],
        "default_candidates": dict(curve.default_candidates),
        "items": dict(curve.items),
        "texts": curve.texts,
        "images": curve.images,
        "resamples": curve.resamples,
        "timed": curve.timed,
    }


def curve_tables(curve: CandidateCurve) -> list[Table]:
    """Build tables of the curve, one for each rule of the second stage."""
    return [_table(curve, rule) for rule in RULES]


def _table(curve: CandidateCurve, rule: Rule) -> Table:
    title = f"{_TITLES[rule]}: with 95 % intervals, photos drawn with their captions"
    table = Table(title=title, title_justify="left", box=SIMPLE_HEAD)
    for name in (
        "\ncandidates",
        "text to image\nR@1",
        "image to text\nR@1",
        "\nrsum",
        "rsum less\nmatching alone",
        "top 10 as\nexhaustive, %",
        "text to image\nms p50 / p95",
        "image to text\nms p50 / p95",
    ):
        table.add_column(name, justify="right", no_wrap=True)
    for place, point in enumerate(curve.points):
        quality = point.fitted if rule == "fitted" else point.papers
        texts, images = quality.text_to_image, quality.image_to_text
        table.add_row(
            _number_words(curve, place),
            _estimate(texts.r1),
            _estimate(images.r1),
            f"{quality.rsum.value:.1f}",
            _estimate(quality.rsum_gain, signed=True),
            f"{100 * texts.agreement:.1f} / {100 * images.agreement:.1f}",
            _ms(point.times.text_to_image),
            _ms(point.times.image_to_text),
        )
    return table


def _number_words(curve: CandidateCurve, place: int) -> str:
    if place == len(curve.points) - 1:
        return "all"
    number = curve.points[place].candidates
    return f"default {number}" if number in curve.default_candidates.values() else str(number)


def _quality_data(quality: Quality) -> dict[str, Any]:
    return {
        "text_to_image": _direction_quality_data(quality.text_to_image),
        "image_to_text": _direction_quality_data(quality.image_to_text),
        "rsum": _estimate_data(quality.rsum),
        "rsum_gain": _estimate_data(quality.rsum_gain),
    }


def _direction_quality_data(quality: DirectionQuality) -> dict[str, Any]:
    return {
        "r1": _estimate_data(quality.r1),
        "r1_gain": _estimate_data(quality.r1_gain),
        "agreement": round(100 * quality.agreement, 3),
    }


def _estimate_data(estimate: Estimate) -> dict[str, float]:
    return {name: round(value, 3) for name, value in estimate._asdict().items()}


def _time_data(time: SearchTime) -> dict[str, float]:
    return {"median": round(time.median_ms, 4), "p95": round(time.p95_ms, 4)}


def _estimate(estimate: Estimate, *, signed: bool = False) -> str:
    form = "+.1f" if signed else ".1f"
    value, low, high = (f"{each:{form}}" for each in estimate)
    return f"{value} ({low}, {high})"


def _ms(time: SearchTime) -> str:
    return f"{time.median_ms:.3g} / {time.p95_ms:.3g}"
