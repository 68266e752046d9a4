"""What `aladin convert` says of a checkpoint: what it took, what it left, what is new."""

from __future__ import annotations

from collections import Counter
from typing import Any

from rich.table import Table

from aladin.conversion.report import ConversionReport


def conversion_data(report: ConversionReport) -> dict[str, Any]:
    """Lay a report out for programs."""
    return {
        "source": str(report.source),
        "out": str(report.out),
        "taken": [each._asdict() for each in report.taken],
        "left": [each._asdict() for each in report.left],
        "new": list(report.new),
        "seed": report.seed,
    }


def conversion_table(report: ConversionReport) -> Table:
    """Lay a report out for people: all that was left, and in short what was taken and is new."""
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
