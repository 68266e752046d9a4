"""Tables for the terminal, and the report of `aladin convert`."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any, NamedTuple

from rich.console import Console
from rich.table import Table

from aladin_network.conversion.tensors import ConversionReport
from aladin_network.scoring.metrics import DirectionMetrics, RetrievalMetrics


class MetricsRow(NamedTuple):
    """One system in a table of metrics.

    Attributes:
        name: Name of the system.
        metrics: Metrics of both directions.
        ms_a_query: Time of a search in ms without the query's encoding, or None if not measured.
    """

    name: str
    metrics: RetrievalMetrics
    ms_a_query: float | None = None


def metrics_table(title: str, rows: Sequence[MetricsRow]) -> Table:
    """Build a table of recalls in percent, median and mean ranks and rsum of several systems.

    Args:
        title: Title above the table.
        rows: One row per system; the time has a column if any system has one.
    """
    timed = any(row.ms_a_query is not None for row in rows)
    table = Table(title=title, title_justify="left")
    table.add_column("", no_wrap=True)
    # A header cannot span columns, so its words are spread over the recall columns of the
    # direction.
    for start, end in (("text", "image"), ("image", "text")):
        for words in (f"{start}\nR@1", "to\nR@5", f"{end}\nR@10", "median\nrank", "mean\nrank"):
            table.add_column(words, justify="right")
    table.add_column("\nrsum", justify="right")
    if timed:
        table.add_column("ms a\nquery", justify="right")
    for row in rows:
        cells = [
            row.name,
            *_direction_cells(row.metrics.text_to_image),
            *_direction_cells(row.metrics.image_to_text),
            f"{row.metrics.rsum:.1f}",
        ]
        if timed:
            cells.append("" if row.ms_a_query is None else f"{row.ms_a_query:.1f}")
        table.add_row(*cells)
    return table


def facts_table(facts: Sequence[tuple[str, str]]) -> Table:
    """Build a table of names and values."""
    table = Table(show_header=False, box=None)
    for name, value in facts:
        table.add_row(name, value)
    return table


def print_table(table: Table, *, stderr: bool = False) -> None:
    """Print a table without truncation, because files are not scrolled sideways.

    Args:
        table: Table to print.
        stderr: Print the table to stderr instead of stdout.
    """
    width = None if Console(stderr=stderr).is_terminal else 132
    Console(stderr=stderr, width=width, highlight=False).print(table)


def _direction_cells(metrics: DirectionMetrics) -> list[str]:
    recalls = (f"{each:.1f}" for each in metrics[:3])
    # Over folds, the median rank is a mean of medians, which may be a fraction.
    return [*recalls, f"{round(metrics.median_rank, 1):g}", f"{metrics.mean_rank:.1f}"]


def conversion_data(report: ConversionReport) -> dict[str, Any]:
    """Return a report as JSON data."""
    return {
        "source": str(report.source),
        "out": str(report.out),
        "taken": [each._asdict() for each in report.taken],
        "left": [each._asdict() for each in report.left],
        "new": list(report.new),
        "seed": report.seed,
    }


def conversion_table(report: ConversionReport) -> Table:
    """Build a table of a report: everything that was skipped, and a summary of the rest."""
    table = Table(title=str(report.source), title_justify="left")
    table.add_column("", no_wrap=True)
    table.add_column("what")
    table.add_column("shape", no_wrap=True)
    table.add_column("why")
    table.add_row("taken", f"{len(report.taken)} tensors", "", "")
    for left in report.left:
        shape = "" if left.shape is None else " x ".join(map(str, left.shape))
        table.add_row("left", left.source, shape, left.reason)
    for part, count in Counter(name.split(".")[0] for name in report.new).items():
        why = f"not in the file: starts at random, seed {report.seed}"
        table.add_row("new", f"{part}: {count} tensors", "", why)
    return table
