"""Options that several conversions share, and what they all say at the end."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from aladin_network.conversion.tensors import ConversionReport

OutOption = Annotated[
    Path, typer.Option("--out", metavar="DIR", help="Folder of the new checkpoint; must be new.")
]
SeedOption = Annotated[
    int, typer.Option("--seed", help="Of the random numbers with which new tensors start.")
]
JsonOption = Annotated[
    bool, typer.Option("--json", help="Print what became of every tensor as JSON on stdout.")
]


def print_conversion(report: ConversionReport, as_json: bool) -> None:
    """Print what became of a checkpoint: a table on stderr and the folder, or JSON."""
    from aladin_service.reports.tables import conversion_data, conversion_table, print_table

    if as_json:
        typer.echo(json.dumps(conversion_data(report), indent=2))
        return
    print_table(conversion_table(report), stderr=True)
    typer.echo(str(report.out))
