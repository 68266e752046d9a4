"""The pictures of a comparison: learning curves and distributions of scores."""

from __future__ import annotations

import itertools
import math
import statistics
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from aladin_network.files import atomic_file
from aladin_training.comparison.evaluation import RunEvaluation
from aladin_training.comparison.summary import Comparison, RecipeSummary

LINES_A_PANEL = 6
# Okabe and Ito's palette, distinguishable for colour-blind readers; the baseline is black.
_COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9")
_MARKERS = ("o", "s", "^", "D", "v", "P")
_BASELINE_COLOUR = "#222222"
_POSITIVE, _NEGATIVE = "#D55E00", "#0072B2"
_DPI = 130


def panels(names: Sequence[str], size: int = LINES_A_PANEL) -> list[list[str]]:
    """Distribute names over panels, keeping names with the same first word together if possible.

    >>> panels(["goal-a", "goal-b", "imc", "rm-oas", "rm-oss"], size=3)
    [['goal-a', 'goal-b', 'imc'], ['rm-oas', 'rm-oss']]

    Args:
        names: Names in the order of the report.
        size: Highest number of names in a panel.
    """
    shared: list[list[str]] = []
    for _, group in itertools.groupby(names, key=lambda name: name.split("-")[0]):
        members = list(group)
        parts = math.ceil(len(members) / size)
        if shared and len(shared[-1]) + len(members) <= size:
            shared[-1] += members
            continue
        each = math.ceil(len(members) / parts)
        shared += [members[first : first + each] for first in range(0, len(members), each)]
    return shared


def draw_learning_curves(comparison: Comparison, file: Path) -> None:
    """Draw the validation rsum against the step of the final stage, a few recipes in each panel.

    Args:
        comparison: Comparison to draw; recipes without a finished run are skipped.
        file: PNG file to write.
    """
    baseline = comparison.baseline
    curves = {
        summary.recipe.name: mean_curve(summary) for summary in comparison.summaries if summary.runs
    }
    others = [name for name in curves if name != baseline.recipe.name]
    shown = panels(others) or [[]]
    columns = min(2, len(shown))
    rows = math.ceil(len(shown) / columns)
    figure = _figure(6.2 * columns, 4.6 * rows)
    # Each panel has its own scale, so that one recipe that stalls does not flatten all others.
    grid = figure.subplots(rows, columns, squeeze=False)
    for axes, names in itertools.zip_longest(grid.flat, shown):
        if names is None:
            axes.set_visible(False)
            continue
        if baseline.runs:
            name = baseline.recipe.name
            label = f"{name} (baseline)"
            _line(axes, curves[name], label, _BASELINE_COLOUR, "", "--")
        for name, colour, marker in zip(names, _COLOURS, _MARKERS, strict=False):
            _line(axes, curves[name], name, colour, marker, "-")
        axes.set(xlabel="step of the final stage", ylabel="validation rsum, own score")
        axes.grid(alpha=0.25)
        axes.legend(
            loc="lower center", bbox_to_anchor=(0.5, 1.0), ncols=2, frameon=False, fontsize=9
        )
    _save(figure, file)


def mean_curve(summary: RecipeSummary) -> list[tuple[int, float, float]]:
    """Return step, mean rsum and standard deviation, for steps at which all seeds were validated.

    Args:
        summary: Summary of a recipe with a finished run.
    """
    curves = [run.curve for run in summary.runs.values()]
    steps = sorted(set(curves[0]).intersection(*curves))
    points = [[curve[step] for curve in curves] for step in steps]
    return [
        (step, statistics.fmean(values), statistics.stdev(values) if len(values) > 1 else 0.0)
        for step, values in zip(steps, points, strict=True)
    ]


def _line(
    axes: Any,
    curve: Sequence[tuple[int, float, float]],
    label: str,
    colour: str,
    marker: str,
    style: str,
) -> None:
    steps = [step for step, _, _ in curve]
    low, high = ([mean + sign * std for _, mean, std in curve] for sign in (-1, 1))
    axes.fill_between(steps, low, high, color=colour, alpha=0.12, linewidth=0)
    axes.plot(
        steps,
        [mean for _, mean, _ in curve],
        label=label,
        color=colour,
        marker=marker,
        markersize=4,
        linestyle=style,
        linewidth=1.6,
    )


def draw_distributions(comparison: Comparison, file: Path) -> None:
    """Draw the distribution of the own score over positive and negative pairs, by recipe.

    Args:
        comparison: Comparison to draw: the first finished seed of each recipe; recipes without a
            finished run are skipped.
        file: PNG file to write.
    """
    summaries = [summary for summary in comparison.summaries if summary.runs]
    columns = min(4, max(1, len(summaries)))
    rows = max(1, math.ceil(len(summaries) / columns))
    figure = _figure(3.3 * columns, 2.5 * rows + 0.5)
    grid = figure.subplots(rows, columns, squeeze=False)
    ranges = _ranges(summaries)
    for axes, summary in itertools.zip_longest(grid.flat, summaries):
        if summary is None:
            axes.set_visible(False)
            continue
        evaluation = _first(summary)
        histogram = evaluation.histograms[summary.score]
        for counts, label, colour in (
            (histogram.positive, "positive pairs", _POSITIVE),
            (histogram.negative, "negative pairs", _NEGATIVE),
        ):
            density = counts / counts.sum().clamp(min=1)
            axes.stairs(
                density.tolist(), histogram.edges(), label=label, color=colour, fill=True, alpha=0.5
            )
            axes.stairs(density.tolist(), histogram.edges(), color=colour, linewidth=1)
        separation = evaluation.mean_difference[summary.score]
        axes.set_title(f"{summary.recipe.name}\nMD {separation:.2f}", fontsize=10)
        axes.set_xlim(ranges[summary.score])
        axes.set_xlabel(f"{summary.score} score", fontsize=9)
        axes.locator_params(axis="x", nbins=5)
        axes.tick_params(labelsize=8)
        axes.set_yticks([])
        axes.spines[["top", "right", "left"]].set_visible(False)
    if summaries:
        handles, labels = grid.flat[0].get_legend_handles_labels()
        figure.legend(handles, labels, loc="outside upper center", ncols=2, frameon=False)
    _save(figure, file)


def _ranges(summaries: Sequence[RecipeSummary]) -> dict[str, tuple[float, float]]:
    """Return one range for each score, so that panels of the same score are comparable."""
    ranges: dict[str, tuple[float, float]] = {}
    for summary in summaries:
        histogram = _first(summary).histograms[summary.score]
        low, high = ranges.get(summary.score, (math.inf, -math.inf))
        ranges[summary.score] = min(low, histogram.low), max(high, histogram.high)
    return ranges


def _first(summary: RecipeSummary) -> RunEvaluation:
    return summary.runs[min(summary.runs)].evaluation


def _figure(width_in: float, height_in: float) -> Any:
    # Imported here: only reports need it, and it takes a second.
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(width_in, height_in), layout="constrained")
    FigureCanvasAgg(figure)
    return figure


def _save(figure: Any, file: Path) -> None:
    with atomic_file(file) as partial:
        figure.savefig(partial, format="png", dpi=_DPI)
