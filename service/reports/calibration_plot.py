"""Draws reliability diagrams."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from aladin.atomic import atomic_file
from aladin.calibration.calibration import Calibration
from aladin.calibration.figures import DirectionFigures, Reliability
from aladin.errors import InputError
from aladin.output_file import check_writable
from service.reports.calibration_report import QUESTIONS, STAGES, of_directions


def check_plot(path: Path) -> None:
    """Refuse a name that nothing can be drawn to, before the long work.

    Raises:
        InputError: no PNG, or it cannot be written.
    """
    if path.suffix.lower() != ".png":
        raise InputError(f"--plot: expected the name of a .png file, got {path}")
    check_writable("--plot", path)


def draw_reliability(path: Path, calibration: Calibration) -> None:
    """Draw the share that was right against the probability, of each direction and question.

    Args:
        path: of the picture, PNG.
        calibration: whose figures are drawn.

    Raises:
        InputError: no PNG, or it cannot be written.
    """
    # The classes themselves: pyplot would keep every figure and choose a window system.
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    check_plot(path)
    directions = of_directions(calibration)
    figure = Figure(figsize=(4 * len(QUESTIONS), 4 * len(directions)), layout="constrained")
    FigureCanvasAgg(figure)
    axes: Any = figure.subplots(len(directions), len(QUESTIONS), squeeze=False)
    for row, (direction, figures) in zip(axes, directions.items(), strict=True):
        for axis, (question, name) in zip(row, QUESTIONS.items(), strict=True):
            _draw(axis, f"{direction}: {name}", question, figures)
    try:
        with atomic_file(path) as partial:
            figure.savefig(partial, format="png", dpi=110)
    except OSError as error:
        raise InputError(f"--plot: {path} cannot be written ({error.strerror})") from error


def _draw(axis: Any, title: str, question: str, figures: DirectionFigures) -> None:
    axis.set_title(title)
    # As far as the probabilities go: a page's hits are seldom likely.
    most = 0.0
    for (stage, name), colour in zip(STAGES.items(), ("tab:blue", "tab:orange"), strict=True):
        measured: Reliability = getattr(getattr(figures, stage), question)
        predicted = [each.predicted for each in measured.bins]
        observed = [each.observed for each in measured.bins]
        most = max(most, *predicted, *observed)
        label = f"{name}, ECE {measured.ece:.3f}"
        axis.plot(predicted, observed, marker="o", markersize=4, color=colour, label=label)
    end = min(1.0, 1.1 * most)
    axis.plot([0, end], [0, end], color="grey", linestyle="--", linewidth=1)
    axis.set_xlabel("probability")
    axis.set_ylabel("share that was right")
    axis.grid(alpha=0.3)
    axis.legend(loc="upper left", fontsize=8)
