"""What was measured of an index's two stages, as tables and as JSON."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from rich.table import Table

from index.manifest import SideEntry
from index.settings import Target


def curves_data(side: SideEntry) -> dict[str, Any]:
    """Return the first stage and the tuning of a side as JSON data."""
    tuning = None if side.tuning is None else asdict(side.tuning)
    return {"ann": asdict(side.ann), "tuning": tuning}


def curve_tables(target: Target, side: SideEntry) -> list[Table]:
    """Lay out the curves of a side that were measured; the chosen points are marked."""
    tables: list[Table] = []
    ann, tuning = side.ann, side.tuning
    if ann.curve:
        table = _table(f"{target}: first stage, {ann.factory}, the nearest {ann.recall_at}")
        for name in ("search width", "oversample", "ann_recall", "ms", ""):
            table.add_column(name, justify="right")
        for point in ann.curve:
            chosen = (point.search_width, point.oversample) == (ann.search_width, ann.oversample)
            table.add_row(
                "all" if point.search_width is None else str(point.search_width),
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


def _table(title: str) -> Table:
    return Table(title=title, title_justify="left")


def _ms(time_ms: float | None) -> str:
    return "" if time_ms is None else f"{time_ms:.3f}"


def _mark(chosen: bool) -> str:
    return "chosen" if chosen else ""
