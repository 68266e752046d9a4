"""Draws quality against the number of candidates and against time."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from aladin.atomic import atomic_file, write_json
from aladin.errors import InputError
from index.curve.candidate_curve import CandidateCurve, CurvePoint, Quality, Rule
from index.curve.photo_bootstrap import Estimate
from service.reports.evaluation_curve import curve_data

_PICTURES = {".png", ".svg", ".pdf"}
_JSON = ".json"

# Of Okabe and Ito: apart for every kind of colour blindness, and one darker than the other.
_FITTED, _PAPERS, _REFERENCE = "#0072B2", "#D55E00", "#555555"


class _Style(NamedTuple):
    """How the curve of one rule looks; also in grey it is told from the other."""

    colour: str
    line: str
    marker: str
    label: str


_STYLES: dict[Rule, _Style] = {
    "fitted": _Style(_FITTED, "-", "o", "two-stage, fusion as fitted"),
    "papers": _Style(_PAPERS, "--", "s", "two-stage, fusion 1 (the papers' rule)"),
}


class _Measure(NamedTuple):
    """A row of the drawing."""

    title: str
    value: Callable[[Quality], Estimate]
    gain: Callable[[Quality], Estimate]
    ms: Callable[[CurvePoint], float]


_MEASURES = (
    _Measure(
        "rsum, both directions",
        lambda quality: quality.rsum,
        lambda quality: quality.rsum_gain,
        lambda point: point.times.mean_ms,
    ),
    _Measure(
        "text to image, R@1 in %",
        lambda quality: quality.text_to_image.r1,
        lambda quality: quality.text_to_image.r1_gain,
        lambda point: point.times.text_to_image.median_ms,
    ),
    _Measure(
        "image to text, R@1 in %",
        lambda quality: quality.image_to_text.r1,
        lambda quality: quality.image_to_text.r1_gain,
        lambda point: point.times.image_to_text.median_ms,
    ),
)


def check_curve_file(path: Path) -> None:
    """Refuse a file that `write_curve` could not write.

    Raises:
        InputError: its name ends otherwise.
    """
    known = sorted({*_PICTURES, _JSON})
    if path.suffix.lower() not in known:
        raise InputError(f"--curve: expected a file name with {', '.join(known)}, got {path}")


def write_curve(path: Path, curve: CandidateCurve, title: str) -> None:
    """Write the curve as a picture, or its numbers, as the name of the file says.

    Args:
        path: of a .png, .svg or .pdf, or of a .json.
        curve: to be written.
        title: above the picture.

    Raises:
        InputError: another kind of file, or it cannot be written.
    """
    check_curve_file(path)
    try:
        if path.suffix.lower() == _JSON:
            write_json(path, curve_data(curve))
        else:
            figure = _figure(curve, title)
            with atomic_file(path) as partial:
                figure.savefig(partial, format=path.suffix.lower().removeprefix("."), dpi=130)
    except OSError as error:
        raise InputError(f"--curve: {path} cannot be written ({error.strerror})") from error


def _figure(curve: CandidateCurve, title: str) -> Any:
    # The classes themselves: pyplot would keep every figure and choose a window system.
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(9, 9.5), layout="constrained")
    FigureCanvasAgg(figure)
    figure.suptitle(title)
    axes: Any = figure.subplots(len(_MEASURES), 2, sharey="row", sharex="col")
    for measure, (left, right) in zip(_MEASURES, axes, strict=True):
        _draw(left, curve, measure, [point.candidates for point in curve.points])
        _draw(right, curve, measure, [measure.ms(point) for point in curve.points])
    return figure


def _draw(axis: Any, curve: CandidateCurve, measure: _Measure, x: Sequence[float]) -> None:
    matching = measure.value(curve.points[0].fitted).value
    for rule, style in _STYLES.items():
        qualities = [point.fitted if rule == "fitted" else point.papers for point in curve.points]
        gains = [measure.gain(quality) for quality in qualities]
        values = [measure.value(quality).value for quality in qualities]
        axis.plot(x, values, style.line, marker=style.marker, color=style.colour, label=style.label)
        axis.fill_between(
            x,
            [matching + gain.low for gain in gains],
            [matching + gain.high for gain in gains],
            color=style.colour,
            alpha=0.15,
        )
    axis.set_xscale("log")
