"""Pictures of a comparison's results: distributions of scores and ranks, recall by setting."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path

import torch
from torch import Tensor

from aladin_training.comparison.drawing import (
    BASELINE_COLOUR,
    COLOURS,
    legend_above,
    save_figure,
    small_panels,
)
from aladin_training.comparison.evaluation import RunEvaluation, ScoreHistogram
from aladin_training.comparison.grid import best_by_value
from aladin_training.comparison.summary import Comparison, RecipeSummary

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
        for grid, choice in zip(comparison.plan.grids, comparison.choices, strict=True)
        for key in grid.values
        if choice.chosen is not None and len(found := best_by_value(grid, choice, key)) > 1
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
