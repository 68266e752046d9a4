"""How the benchmarks of the service are called, and how they tell what they measured."""

from __future__ import annotations

import argparse
import json
from collections.abc import Mapping
from typing import Any


def figures_parser(doc: str | None, quick: str) -> argparse.ArgumentParser:
    """Make a parser of the options that all of them have.

    Args:
        doc: of the module.
        quick: what the quick form does.
    """
    parser = argparse.ArgumentParser(
        description=doc, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--json", action="store_true", help="print JSON")
    parser.add_argument("--quick", action="store_true", help=quick)
    return parser


def print_figures(figures: Mapping[str, Any], *, as_json: bool) -> None:
    """Print all as JSON, or a line for each that is a single value."""
    if as_json:
        print(json.dumps(figures, indent=2))
        return
    single = {name: value for name, value in figures.items() if not isinstance(value, list | dict)}
    width = max(map(len, single), default=0)
    for name, value in single.items():
        shown = f"{value:.3f}" if isinstance(value, float) else value
        print(f"{name:<{width}}  {shown}")
