"""What the pictures of a comparison have in common: palette, panels and files."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from aladin_network.files import atomic_file
from aladin_training.comparison.summary import CurvePoint

LINES_A_PANEL = 6
# Okabe and Ito's palette, distinguishable for colour-blind readers; the baseline is black.
COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9")
BASELINE_COLOUR = "#222222"
_COLUMNS = 4
# Width of the longest entry of a legend.
_LEGEND_ENTRY_IN = 2.4
_DPI = 130


def panels(names: Sequence[str], size: int = LINES_A_PANEL) -> list[list[str]]:
    """Distribute names over panels, keeping names with the same first word together if possible.

    >>> panels(["goal-a", "goal-b", "imc", "rm-oas", "rm-oss"], size=3)
    [['goal-a', 'goal-b', 'imc'], ['rm-oas', 'rm-oss']]
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


def empty_figure(width_in: float, height_in: float) -> Any:
    """Return a figure that needs no screen."""
    # Imported here: only reports need it, and it takes a second.
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(width_in, height_in), layout="constrained")
    FigureCanvasAgg(figure)
    return figure


def small_panels(
    count: int, width_in: float = 3.3, height_in: float = 2.5
) -> tuple[Any, list[Any]]:
    """Return a figure and its panels, up to four side by side."""
    columns = min(_COLUMNS, max(1, count))
    rows = max(1, math.ceil(count / columns))
    figure = empty_figure(width_in * columns, height_in * rows + 0.5)
    grid = list(figure.subplots(rows, columns, squeeze=False).flat)
    for axes in grid[count:]:
        axes.set_visible(False)
    for axes in grid[:count]:
        axes.tick_params(labelsize=8)
    return figure, grid[:count]


def legend_above(figure: Any, axes: Sequence[Any], columns: int) -> None:
    """Explain the lines of some panels once, above all of them."""
    handles, labels = (
        list(itertools.chain.from_iterable(parts))
        for parts in zip(*(each.get_legend_handles_labels() for each in axes), strict=True)
    )
    fits = figure.get_figwidth() >= _LEGEND_ENTRY_IN * columns
    figure.legend(
        handles,
        labels,
        loc="outside upper center",
        ncols=columns if fits else 1,
        frameon=False,
    )


def draw_band(axes: Any, curve: Sequence[CurvePoint], colour: str, **style: Any) -> None:
    """Draw a curve, with a band of one standard deviation on each side."""
    steps = [point.step for point in curve]
    low, high = ([point.mean + sign * point.std for point in curve] for sign in (-1, 1))
    axes.fill_between(steps, low, high, color=colour, alpha=0.12, linewidth=0)
    axes.plot(steps, [point.mean for point in curve], color=colour, linewidth=1.6, **style)


def save_figure(figure: Any, file: Path) -> None:
    """Write a figure as a PNG file."""
    with atomic_file(file) as partial:
        figure.savefig(partial, format="png", dpi=_DPI)
