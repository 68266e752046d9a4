"""Pictures of a comparison: final stages by step, distributions of scores and ranks, settings."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Sequence
from pathlib import Path

import torch
from torch import Tensor

from aladin_training.comparison.drawing import (
    BASELINE_COLOUR,
    COLOURS,
    draw_band,
    empty_figure,
    legend_above,
    panels,
    save_figure,
    small_panels,
)
from aladin_training.comparison.evaluation import RunEvaluation, ScoreHistogram
from aladin_training.comparison.grid import best_by_value
from aladin_training.comparison.summary import Comparison, CurvePoint, RecipeSummary, mean_curve

_MARKERS = ("o", "s", "^", "D", "v", "P")
_LOSS_COLOUR = "#888888"
_POSITIVE, _NEGATIVE, _HARDEST = "#D55E00", "#0072B2", "#222222"
# Share of a distribution that a bin needs to widen the picture.
_VISIBLE = 1e-3


def draw_distributions(comparison: Comparison, file: Path) -> bool:
    """Draw the distribution of the own score over positive and negative pairs, by recipe."""
    summaries = [summary for summary in comparison.summaries if summary.runs]
    if not summaries:
        return False
    figure, grid = small_panels(len(summaries))
    ranges = _ranges(summaries)
    for axes, summary in zip(grid, summaries, strict=True):
        evaluation = _first(summary)
        histogram = evaluation.histograms[summary.score]
        for counts, label, colour, filled in (
            (histogram.positive, "positive pairs", _POSITIVE, True),
            (histogram.negative, "negative pairs", _NEGATIVE, True),
            (histogram.hardest, "hardest negative of each query", _HARDEST, False),
        ):
            density = (counts / counts.sum().clamp(min=1)).tolist()
            edges = histogram.edges()
            if filled:
                axes.stairs(density, edges, color=colour, fill=True, alpha=0.5)
            axes.stairs(density, edges, label=label, color=colour, linewidth=1)
        separation = evaluation.mean_difference[summary.score]
        axes.set_title(f"{summary.recipe.name}\nMD {separation:.2f}", fontsize=10)
        axes.set_xlim(ranges[summary.score])
        axes.set_xlabel(f"{summary.score} score", fontsize=9)
        axes.locator_params(axis="x", nbins=5)
        axes.set_yticks([])
        axes.spines[["top", "right", "left"]].set_visible(False)
    legend_above(figure, grid[:1], columns=3)
    save_figure(figure, file)
    return True


def draw_cross_ranks(comparison: Comparison, file: Path) -> bool:
    """Draw how the cross-retrieval ranks of positive pairs are distributed (AOQ, figure 5)."""
    ranks = {
        summary.recipe.name: _first(summary).cross_ranks[summary.score]
        for summary in comparison.summaries
        if summary.runs
    }
    if not ranks:
        return False
    edges = _rank_edges(max(int(each.max()) for each in ranks.values()))
    shares = {name: _shares_between(each, edges) for name, each in ranks.items()}
    baseline = comparison.baseline.recipe.name
    others = [name for name in shares if name != baseline] or [baseline]
    figure, grid = small_panels(len(others))
    highest = 1.08 * max(map(max, shares.values()))
    for axes, name in zip(grid, others, strict=True):
        axes.stairs(shares[name], edges, color=COLOURS[0], fill=True, alpha=0.5, label="recipe")
        if baseline in shares:
            style = {"color": BASELINE_COLOUR, "linestyle": "--", "linewidth": 1.2}
            axes.stairs(shares[baseline], edges, label=f"{baseline} (baseline)", **style)
        median = int(ranks[name].double().quantile(0.5).floor())
        axes.set_title(f"{name}\nmedian rank {median:,}", fontsize=10)
        axes.set_xscale("log")
        axes.set_xlim(edges[0], edges[-1])
        axes.set_ylim(0, highest)
        axes.xaxis.set_major_formatter("{x:,.0f}")
        axes.set_xlabel("cross-retrieval rank", fontsize=9)
        axes.set_ylabel("positive pairs, %", fontsize=9)
        axes.spines[["top", "right"]].set_visible(False)
    legend_above(figure, grid[:1], columns=2)
    save_figure(figure, file)
    return True


def _rank_edges(highest: int) -> list[int]:
    """Return the edges of bars from rank 1, each twice as wide as the one before it.

    >>> _rank_edges(6)
    [1, 2, 4, 8]
    """
    edges = [1, 2]
    while edges[-1] <= highest:
        edges.append(2 * edges[-1])
    return edges


def _shares_between(ranks: Tensor, edges: Sequence[int]) -> list[float]:
    """Return the share of ranks from each edge up to the next one, in percent."""
    bars = torch.bucketize(ranks, torch.tensor(edges), right=True) - 1
    counts = torch.bincount(bars, minlength=len(edges) - 1)
    return (100 * counts / len(ranks)).tolist()


def draw_settings(comparison: Comparison, file: Path) -> bool:
    """Draw R@1 of both directions against each setting that was chosen, a panel a setting."""
    shown = [
        (choice.recipe, key, found, grid.combination(choice.chosen)[key])
        for choice in comparison.choices
        for grid in comparison.plan.grids
        for key in grid.values
        if (grid.recipe, choice.fold) == (choice.recipe, 0)
        and choice.chosen is not None
        and len(found := best_by_value(grid, choice, key)) > 1
    ]
    if not shown:
        return False
    figure, panels = small_panels(len(shown), width_in=3.8, height_in=3.0)
    for axes, (recipe, key, found, chosen) in zip(panels, shown, strict=True):
        places = _places(list(found))
        for direction, colour, marker in (
            ("text_to_image", COLOURS[0], "o"),
            ("image_to_text", COLOURS[1], "s"),
        ):
            recalls = [getattr(each, direction).r1 for each in found.values()]
            label = f"R@1 {direction.replace('_', ' ')}"
            axes.plot(places, recalls, color=colour, marker=marker, label=label, linewidth=1.6)
        axes.axvline(places[list(found).index(chosen)], color="#888888", linestyle=":")
        axes.set_xticks(places, list(found))
        axes.set_title(recipe, fontsize=10)
        axes.set_xlabel(key.rpartition(".")[2].replace("_", " "), fontsize=9)
        axes.grid(alpha=0.25)
    legend_above(figure, panels[:1], columns=2)
    save_figure(figure, file)
    return True


def _places(values: Sequence[str]) -> list[float]:
    """Return where values are drawn: as numbers if all are finite ones, else in their order."""
    try:
        numbers = [float(value) for value in values]
    except ValueError:
        numbers = []
    if numbers and all(map(math.isfinite, numbers)):
        return numbers
    return [float(place) for place in range(len(values))]


def _ranges(summaries: Sequence[RecipeSummary]) -> dict[str, tuple[float, float]]:
    """Return one range for each score, so that panels of the same score are comparable."""
    ranges: dict[str, tuple[float, float]] = {}
    for summary in summaries:
        first, last = _populated(_first(summary).histograms[summary.score])
        low, high = ranges.get(summary.score, (math.inf, -math.inf))
        ranges[summary.score] = min(low, first), max(high, last)
    return ranges


def _populated(histogram: ScoreHistogram) -> tuple[float, float]:
    """Return the range of the bins with a visible share of the pairs of a kind."""
    kinds = histogram.positive, histogram.negative, histogram.hardest
    visible = [counts > _VISIBLE * counts.sum() for counts in kinds]
    bins = torch.stack(visible).any(dim=0).nonzero().flatten()
    edges = histogram.edges()
    return edges[int(bins[0])], edges[int(bins[-1]) + 1]


def _first(summary: RecipeSummary) -> RunEvaluation:
    return summary.runs[min(summary.runs)].evaluation


def draw_learning_curves(comparison: Comparison, file: Path) -> bool:
    """Draw the validation rsum against the step of the final stage, a few recipes in each panel."""
    return _draw_beside_baseline(
        comparison,
        file,
        "validation rsum, own score",
        lambda each: mean_curve([run.curve for run in each.runs.values()]),
    )


def draw_separation(comparison: Comparison, file: Path) -> bool:
    """Draw MD against the step of the final stage, a few recipes in each panel."""
    return _draw_beside_baseline(
        comparison,
        file,
        "MD, own score",
        lambda each: each.logged(f"{each.score}_mean_difference"),
    )


def _draw_beside_baseline(
    comparison: Comparison,
    file: Path,
    label: str,
    curve_of: Callable[[RecipeSummary], Sequence[CurvePoint]],
) -> bool:
    """Draw a curve of each recipe beside the baseline's; return whether there was any."""
    curves = {
        summary.recipe.name: curve
        for summary in comparison.summaries
        if summary.runs and (curve := curve_of(summary))
    }
    if not curves:
        return False
    baseline = comparison.baseline.recipe.name
    shown = panels([name for name in curves if name != baseline]) or [[]]
    columns = min(2, len(shown))
    rows = math.ceil(len(shown) / columns)
    figure = empty_figure(6.2 * columns, 4.6 * rows)
    # Each panel has its own scale, so that one recipe that stalls does not flatten all others.
    grid = figure.subplots(rows, columns, squeeze=False)
    for axes, names in itertools.zip_longest(grid.flat, shown):
        if names is None:
            axes.set_visible(False)
            continue
        if baseline in curves:
            name = f"{baseline} (baseline)"
            draw_band(axes, curves[baseline], BASELINE_COLOUR, label=name, linestyle="--")
        for name, colour, marker in zip(names, COLOURS, _MARKERS, strict=False):
            draw_band(axes, curves[name], colour, label=name, marker=marker, markersize=4)
        axes.set(xlabel="step of the final stage", ylabel=label)
        axes.grid(alpha=0.25)
        axes.legend(
            loc="lower center", bbox_to_anchor=(0.5, 1.0), ncols=2, frameon=False, fontsize=9
        )
    save_figure(figure, file)
    return True


def draw_loss_and_recall(comparison: Comparison, file: Path) -> bool:
    """Draw the training loss and R@1 of both directions against the step, a panel a recipe."""
    shown = [each for each in comparison.summaries if each.runs and _recalls(each)["text to image"]]
    if not shown:
        return False
    figure, grid = small_panels(len(shown), width_in=3.8)
    highest = max(
        point.mean for each in shown for curve in _recalls(each).values() for point in curve
    )
    recall_axes = None
    for axes, summary in zip(grid, shown, strict=True):
        # Losses of different objectives have no common scale; recalls have.
        draw_band(axes, summary.logged("loss"), _LOSS_COLOUR, label="training loss, left")
        axes.set_title(summary.recipe.name, fontsize=10)
        axes.set_xlabel("step of the final stage", fontsize=9)
        recall_axes = axes.twinx()
        recall_axes.set_ylim(0, 1.05 * highest or 1.0)
        recall_axes.tick_params(labelsize=8)
        for (direction, curve), colour, marker in zip(
            _recalls(summary).items(), COLOURS, _MARKERS, strict=False
        ):
            label = f"R@1 {direction}, right"
            draw_band(recall_axes, curve, colour, label=label, marker=marker, markersize=3)
    legend_above(figure, [grid[-1], recall_axes], columns=3)
    save_figure(figure, file)
    return True


def draw_gradient_shares(comparison: Comparison, file: Path) -> bool:
    """Draw the share of each task in the gradient against the step, a panel a recipe."""
    shares = {
        summary.recipe.name: shares
        for summary in comparison.summaries
        if summary.runs and (shares := summary.gradient_shares())
    }
    if not shares:
        return False
    figure, grid = small_panels(len(shares), width_in=3.8, height_in=3.0)
    for axes, (recipe, curves) in zip(grid, shares.items(), strict=True):
        for (task, curve), colour in zip(curves.items(), itertools.cycle(COLOURS), strict=False):
            in_percent = [CurvePoint(step, 100 * mean, 100 * std) for step, mean, std in curve]
            draw_band(axes, in_percent, colour, label=task.replace("_", " "))
        axes.set_ylim(-2, 102)
        axes.set_title(recipe, fontsize=10)
        axes.set_xlabel("step of the final stage", fontsize=9)
        axes.set_ylabel("share of the gradient, %", fontsize=9)
        axes.grid(alpha=0.25)
        axes.legend(frameon=False, fontsize=8)
    save_figure(figure, file)
    return True


def _recalls(summary: RecipeSummary) -> dict[str, list[CurvePoint]]:
    """Return the curves of R@1 of the own score by direction."""
    return {
        direction.replace("_", " "): summary.logged(f"{summary.score}_{direction}_r1")
        for direction in ("text_to_image", "image_to_text")
    }
