"""Plots quality against the number of candidates and against time, or writes the numbers."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

from aladin_index.measure.curve_points import (
    CandidateCurve,
    DirectionQuality,
    Estimate,
    Quality,
    Rule,
    SearchTimes,
)
from aladin_network.errors import InputError
from aladin_network.files import atomic_file, check_writable, write_json
from aladin_network.types import Direction
from aladin_service.reports.evaluation_report import curve_data

_WIDTH_INCH, _HEIGHT_INCH = 9.0, 9.6
# Smallest distance of two labels, as a fraction of the axis: closer labels cannot be read.
_LINE_HEIGHT = 0.085
_GREY = "#555555"
_BAND = 0.13

_FORMATS = (".json", ".pdf", ".png", ".svg")
# Resolution of a PNG: 9 inches are as wide as a page of text on a screen.
_DOTS_PER_INCH = 110


class _Style(NamedTuple):
    """Style of a rule's curve; curves differ by colour, darkness, line and marker."""

    colour: str
    line: str
    marker: str
    label: str
    exhaustive: str


# Blue and vermilion are distinguishable with every kind of colour blindness, and one is much darker
# in grey.
_STYLES: dict[Rule, _Style] = {
    "fitted": _Style("#00457C", "-", "o", "two-stage, fusion as fitted", "exhaustive fused"),
    "papers": _Style(
        "#D55E00", "--", "s", "two-stage, fusion 1 (the papers' rule)", "exhaustive alignment"
    ),
}


class _Measure(NamedTuple):
    """A row of the figure: R@1 of a direction, or the rsum of both where it is None."""

    title: str
    direction: Direction | None

    def value(self, quality: Quality) -> Estimate:
        """Return the value of the measure."""
        if self.direction is None:
            return quality.rsum
        return self._collection(quality).r1

    def gain(self, quality: Quality) -> Estimate:
        """Return the gain over matching alone."""
        if self.direction is None:
            return quality.rsum_gain
        return self._collection(quality).r1_gain

    def ms(self, times: SearchTimes) -> float:
        """Return the time of a search; for both directions, the mean."""
        if self.direction is None:
            return times.mean_ms
        of_texts = self.direction == "text_to_image"
        return (times.text_to_image if of_texts else times.image_to_text).median_ms

    def default(self, curve: CandidateCurve) -> int | None:
        """Return the default number of candidates, or None if the directions differ."""
        if self.direction is not None:
            return curve.default_candidates[self.direction]
        both = set(curve.default_candidates.values())
        return both.pop() if len(both) == 1 else None

    def _collection(self, quality: Quality) -> DirectionQuality:
        of_texts = self.direction == "text_to_image"
        return quality.text_to_image if of_texts else quality.image_to_text


_MEASURES = (
    _Measure("rsum, both directions", None),
    _Measure("text to image, R@1 in %", "text_to_image"),
    _Measure("image to text, R@1 in %", "image_to_text"),
)


def curve_figure(curve: CandidateCurve, title: str) -> Any:
    """Plot rsum and R@1 of each direction: on the left by candidates, on the right by time."""
    # The classes are used directly: pyplot would keep every figure and choose a window system.
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure
    from matplotlib.patches import Patch
    from matplotlib.ticker import LogLocator

    figure = Figure(figsize=(_WIDTH_INCH, _HEIGHT_INCH), layout="constrained")
    FigureCanvasAgg(figure)
    axes: Any = figure.subplots(len(_MEASURES), 2, sharey="row", sharex="col")
    for measure, (left, right) in zip(_MEASURES, axes, strict=True):
        for axis, x in ((left, _numbers(curve)), (right, _times(curve, measure))):
            _draw_references(axis, curve, measure)
            _draw_curves(axis, curve, measure, x)
            _mark_default(axis, curve, measure, x)
            axis.set_xscale("log")
            axis.margins(y=0.12)
            axis.grid(alpha=0.25)
            axis.spines[["top", "right"]].set_visible(False)
        left.set_title(measure.title, loc="left", fontsize=11, fontweight="bold")
        _name_ends(right, curve, measure)
        _label_references(right, curve, measure)
    left, right = axes[-1]
    left.set_xlabel("candidates that are re-ranked")
    left.set_xticks(_numbers(curve), [*map(str, _numbers(curve)[:-1]), "all"], fontsize=8)
    left.minorticks_off()
    right.set_xlabel("ms of a search, median, one thread")
    right.xaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
    right.xaxis.set_major_formatter("{x:g}")
    right.minorticks_off()
    band = Patch(color=_GREY, alpha=2 * _BAND, linewidth=0)
    handles, labels = axes[0][0].get_legend_handles_labels()
    figure.legend(
        [*handles, band],
        [*labels, "95 % interval of the gain over matching alone"],
        loc="outside lower center",
        ncols=2,
        frameon=False,
    )
    asking = f"{curve.texts:,} texts and {curve.images:,} photos ask"
    figure.suptitle(f"{title}: {asking}", fontsize=12)
    return figure


def _numbers(curve: CandidateCurve) -> list[int]:
    return [point.candidates for point in curve.points]


def _times(curve: CandidateCurve, measure: _Measure) -> list[float]:
    return [measure.ms(point.times) for point in curve.points]


def _qualities(curve: CandidateCurve, rule: Rule) -> list[Quality]:
    return [point.fitted if rule == "fitted" else point.papers for point in curve.points]


def _references(curve: CandidateCurve, measure: _Measure) -> list[tuple[str, float, str]]:
    """Return the reference lines of the curves: name, value and colour."""
    matching = measure.value(curve.points[0].fitted).value
    return [
        ("matching alone", matching, _GREY),
        *(
            (style.exhaustive, measure.value(_qualities(curve, rule)[-1]).value, style.colour)
            for rule, style in _STYLES.items()
        ),
    ]


def _draw_references(axis: Any, curve: CandidateCurve, measure: _Measure) -> None:
    for _, value, colour in _references(curve, measure):
        axis.axhline(value, color=colour, linewidth=1, linestyle=":")


def _draw_curves(axis: Any, curve: CandidateCurve, measure: _Measure, x: Sequence[float]) -> None:
    matching = measure.value(curve.points[0].fitted).value
    for rule, style in _STYLES.items():
        qualities = _qualities(curve, rule)
        gains = [measure.gain(quality) for quality in qualities]
        # Relative to matching alone: photos that are hard are hard for both, so the gain is far
        # more certain than either value.
        axis.fill_between(
            x,
            [matching + gain.low for gain in gains],
            [matching + gain.high for gain in gains],
            color=style.colour,
            alpha=_BAND,
            linewidth=0,
        )
        axis.plot(
            x,
            [measure.value(quality).value for quality in qualities],
            style.line,
            marker=style.marker,
            markersize=4.5,
            linewidth=1.8,
            color=style.colour,
            label=style.label,
        )


def _mark_default(axis: Any, curve: CandidateCurve, measure: _Measure, x: Sequence[float]) -> None:
    """Mark the point of the default number of candidates."""
    default = measure.default(curve)
    if default is None:
        return
    numbers = _numbers(curve)
    # In an index with fewer items than the default, all items are candidates.
    place = numbers.index(min(default, numbers[-1]))
    value = measure.value(_qualities(curve, "fitted")[place]).value
    axis.plot(x[place], value, "o", markersize=11, markerfacecolor="none", markeredgecolor="black")
    axis.annotate(
        f"default: {default}",
        (x[place], value),
        xytext=(0, 11),
        textcoords="offset points",
        ha="center",
        fontsize=9,
    )


def _name_ends(axis: Any, curve: CandidateCurve, measure: _Measure) -> None:
    """Label the ends of the time curve with their numbers of candidates."""
    x = _times(curve, measure)
    for place, name in ((0, "1 candidate"), (-1, "all")):
        value = measure.value(_qualities(curve, "fitted")[place]).value
        axis.annotate(
            name,
            (x[place], value),
            xytext=(0, 8) if place else (8, -3),
            textcoords="offset points",
            ha="center" if place else "left",
            va="bottom" if place else "top",
            fontsize=8,
            color=_GREY,
        )


def _label_references(axis: Any, curve: CandidateCurve, measure: _Measure) -> None:
    """Label the reference lines at their right end, as close to their height as possible."""
    low, high = axis.get_ylim()
    references = sorted(_references(curve, measure), key=lambda each: each[1])
    heights = _apart([(value - low) / (high - low) for _, value, _ in references], _LINE_HEIGHT)
    for (name, value, colour), height in zip(references, heights, strict=True):
        axis.annotate(
            f"{name} {value:.1f}",
            xy=(1, height),
            xycoords="axes fraction",
            xytext=(6, 0),
            textcoords="offset points",
            va="center",
            color=colour,
            fontsize=9,
            annotation_clip=False,
        )


def _apart(places: Sequence[float], least: float) -> list[float]:
    """Move ascending positions so that they are `least` apart, keeping their mean."""
    moved: list[float] = []
    for place in places:
        moved.append(place if not moved else max(place, moved[-1] + least))
    shift = (sum(moved) - sum(places)) / len(places)
    return [place - shift for place in moved]


def check_curve_file(path: Path) -> None:
    """Reject a file that `write_curve` could not write."""
    if path.suffix.lower() not in _FORMATS:
        raise InputError(f"--curve: expected a name with one of {', '.join(_FORMATS)}, got {path}")
    check_writable("--curve", path)


def write_curve(path: Path, curve: CandidateCurve, title: str) -> None:
    """Write the curve in the format given by the file's suffix."""
    check_curve_file(path)
    kind = path.suffix.lower()
    try:
        if kind == ".json":
            write_json(path, curve_data(curve))
            return
        figure = curve_figure(curve, title)
        with atomic_file(path) as partial:
            figure.savefig(partial, format=kind.removeprefix("."), dpi=_DOTS_PER_INCH)
    except OSError as error:
        raise InputError(f"--curve: {path} cannot be written ({error.strerror})") from error
