"""The curve against the number of candidates, as JSON and as tables."""

from __future__ import annotations

from typing import Any

from rich.box import SIMPLE_HEAD
from rich.table import Table

from index.curve.curve_points import RULES, CandidateCurve, DirectionQuality, Quality, Rule
from index.curve.photo_bootstrap import Estimate
from index.curve.search_times import SearchTime

_TITLES: dict[Rule, str] = {
    "fitted": "two-stage, fusion as fitted",
    "papers": "two-stage, fusion 1 (the papers' rule)",
}


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
    """Lay the curve out, a table for each rule of the second stage."""
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
        "text_to_image": _direction_data(quality.text_to_image),
        "image_to_text": _direction_data(quality.image_to_text),
        "rsum": _estimate_data(quality.rsum),
        "rsum_gain": _estimate_data(quality.rsum_gain),
    }


def _direction_data(quality: DirectionQuality) -> dict[str, Any]:
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
