"""The measurements of an index's two stages as plots, tables and JSON data."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.table import Table

from aladin_index.format.manifest import CollectionEntry
from aladin_network.errors import InputError, need_packages
from aladin_network.files import atomic_file, check_writable
from aladin_network.types import Target

if TYPE_CHECKING:
    from matplotlib.figure import Figure


def check_plot(path: Path) -> None:
    """Reject a file name that no plot can be written to, before the long work."""
    if path.suffix.lower() != ".png":
        raise InputError(f"--plot: expected the name of a .png file, got {path}")
    need_packages("--plot", "matplotlib")
    check_writable("--plot", path)


def save_plot(path: Path, figure: Figure) -> None:
    """Write a figure to a PNG file."""
    try:
        with atomic_file(path) as partial:
            figure.savefig(partial, format="png", dpi=110)
    except OSError as error:
        raise InputError(f"--plot: {path} cannot be written ({error.strerror})") from error


def draw_curves(path: Path, collections: Mapping[Target, CollectionEntry]) -> None:
    """Plot two curves for each collection: ann_recall, and fidelity if it was measured."""
    # The classes are used directly: pyplot would keep every figure and choose a window system.
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    check_plot(path)
    figure = Figure(figsize=(11, 4 * len(collections)), layout="constrained")
    FigureCanvasAgg(figure)
    axes: Any = figure.subplots(len(collections), 2, squeeze=False)
    for (target, collection), (left, right) in zip(collections.items(), axes, strict=True):
        _draw_first_stage(left, target, collection)
        _draw_both_stages(right, target, collection)
    save_plot(path, figure)


def _draw_first_stage(axis: Any, target: Target, collection: CollectionEntry) -> None:
    ann = collection.ann
    widths = [point.search_width for point in ann.curve]
    axis.set_title(f"{target}: {ann.factory} finds the nearest {ann.recall_at}")
    axis.set_ylabel("ann_recall")
    if all(width is None for width in widths):
        axis.text(0.5, 0.5, f"every item is compared: {ann.recall:.4f}", ha="center")
        axis.set_axis_off()
        return
    _draw(
        axis,
        [width or 1 for width in widths],
        [point.recall for point in ann.curve],
        [f"x{point.oversample:g}" if point.oversample > 1 else "" for point in ann.curve],
        chosen=widths.index(ann.search_width) if ann.search_width in widths else None,
        wanted=ann.recall_wanted,
    )
    axis.set_xlabel("search width (x: rows asked for, for each one wanted)")


def _draw_both_stages(axis: Any, target: Target, collection: CollectionEntry) -> None:
    tuning = collection.tuning
    if tuning is None:
        axis.text(0.5, 0.5, "fidelity was not measured: aladin index tune", ha="center")
        axis.set_axis_off()
        return
    numbers = [point.candidates for point in tuning.curve]
    axis.set_title(f"{target}: two stages keep the exhaustive top {tuning.at}")
    axis.set_ylabel("fidelity")
    _draw(
        axis,
        numbers,
        [point.fidelity for point in tuning.curve],
        [f"{point.search_ms:.1f} ms" for point in tuning.curve],
        chosen=numbers.index(tuning.candidates),
        wanted=tuning.fidelity_wanted,
    )
    axis.set_xlabel("candidates")


def _draw(
    axis: Any,
    x: Sequence[int],
    y: Sequence[float],
    labels: Sequence[str],
    *,
    chosen: int | None,
    wanted: float,
) -> None:
    axis.plot(x, y, marker="o", color="tab:blue")
    axis.axhline(wanted, color="grey", linestyle="--", linewidth=1, label=f"wanted {wanted:g}")
    if chosen is not None:
        label = f"chosen: {x[chosen]}, {y[chosen]:.4f}"
        axis.plot(x[chosen], y[chosen], marker="o", markersize=11, color="tab:red", label=label)
    for place, (across, up, label) in enumerate(zip(x, y, labels, strict=True)):
        below = (0, -14) if place % 2 else (0, 8)
        axis.annotate(
            label, (across, up), textcoords="offset points", xytext=below, ha="center", fontsize=7
        )
    axis.set_xscale("log")
    axis.set_xticks(x, [str(each) for each in x], fontsize=7)
    axis.minorticks_off()
    axis.margins(y=0.15)
    axis.grid(alpha=0.3)
    axis.legend(loc="lower right")


def curves_data(collection: CollectionEntry) -> dict[str, Any]:
    """Return the first stages and the tuning of a collection as JSON data."""
    tuning = None if collection.tuning is None else asdict(collection.tuning)
    return {"ann": asdict(collection.ann), "tuning": tuning}


def curve_tables(target: Target, collection: CollectionEntry) -> list[Table]:
    """Build tables of the measured curves of a collection, with the chosen points marked."""
    tables: list[Table] = []
    ann, tuning = collection.ann, collection.tuning
    if ann.curve:
        table = _table(f"{target}: first stage, {ann.factory}, the nearest {ann.recall_at}")
        for name in ("search width", "oversample", "ann_recall", "ms", ""):
            table.add_column(name, justify="right")
        for point in ann.curve:
            chosen = (point.search_width, point.oversample) == (ann.search_width, ann.oversample)
            table.add_row(
                _width(point.search_width),
                f"{point.oversample:g}",
                f"{point.recall:.4f}",
                _ms(point.search_ms),
                _mark(chosen),
            )
        tables.append(table)
    if tuning is not None:
        title = f"{target}: both stages, top {tuning.at} of {tuning.queries} queries"
        table = _table(title)
        for name in ("candidates", "fidelity", "ms", ""):
            table.add_column(name, justify="right")
        for each in tuning.curve:
            table.add_row(
                str(each.candidates),
                f"{each.fidelity:.4f}",
                _ms(each.search_ms),
                _mark(each.candidates == tuning.candidates),
            )
        tables.append(table)
    return tables


def _width(search_width: int | None) -> str:
    return "all" if search_width is None else str(search_width)


def _table(title: str) -> Table:
    return Table(title=title, title_justify="left")


def _ms(time_ms: float | None) -> str:
    return "" if time_ms is None else f"{time_ms:.3f}"


def _mark(chosen: bool) -> str:
    return "chosen" if chosen else ""
