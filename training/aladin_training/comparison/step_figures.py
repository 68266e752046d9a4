"""Pictures of the final stages' steps: loss and recall, separation, shares of the gradient."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Sequence
from pathlib import Path

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
from aladin_training.comparison.summary import (
    Comparison,
    CurvePoint,
    RecipeSummary,
    mean_curve,
)

_MARKERS = ("o", "s", "^", "D", "v", "P")
_LOSS_COLOUR = "#888888"


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
