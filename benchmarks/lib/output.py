"""Command lines of the benchmarks, and what they print: JSON, figures, Markdown tables."""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np


def figures_parser(doc: str | None, quick: str | None = None) -> argparse.ArgumentParser:
    """Make a parser of the options that all benchmarks have.

    Args:
        doc: Docstring of the module.
        quick: Description of the quick form, or None if there is none.
    """
    parser = argparse.ArgumentParser(
        description=doc, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--json", action="store_true", help="print JSON")
    if quick is not None:
        parser.add_argument("--quick", action="store_true", help=quick)
    return parser


def print_json(figures: object) -> None:
    """Print figures as indented JSON."""
    print(json.dumps(figures, indent=2))


def print_figures(figures: Mapping[str, Any], *, as_json: bool) -> None:
    """Print all figures as JSON, or one line for each that is a single value."""
    if as_json:
        print_json(figures)
        return
    single = {name: value for name, value in figures.items() if not isinstance(value, list | dict)}
    width = max(map(len, single), default=0)
    for name, value in single.items():
        shown = f"{value:.3f}" if isinstance(value, float) else value
        print(f"{name:<{width}}  {shown}")


def print_rows(columns: Sequence[str], rows: Iterable[Sequence[object]]) -> None:
    """Print a table in Markdown; all columns but the first are aligned to the right."""
    print(f"| {' | '.join(columns)} |")
    print("| --- |" + " ---: |" * (len(columns) - 1))
    for row in rows:
        print(f"| {' | '.join(map(str, row))} |", flush=True)


def median_and_most(values: Sequence[float]) -> list[float]:
    """Return the median and the maximum, rounded to one digit; empty if there are no values."""
    return [round(float(np.median(values)), 1), round(max(values), 1)] if values else []
