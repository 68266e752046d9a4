"""``aladin index info``."""

from __future__ import annotations

import json
from typing import Annotated

import typer

from service.commands.index.arguments import IndexArgument, PlotOption


def info(
    index: IndexArgument,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON, not tables.")] = False,
    plot: PlotOption = None,
) -> None:
    """Say what an index holds.

    In: INDEX. Out: on stdout its generation, model, sizes, first stages and pending changes, what
    was measured of both stages when it was built and when it was tuned, and of its probabilities
    when they were fitted; on stderr, where these were fitted among far more or fewer items.
    """
    from index.info import describe
    from service.reports.index_curves import curve_tables
    from service.reports.index_facts import calibration_warnings, index_data, index_facts
    from service.reports.index_plot import draw_curves
    from service.reports.tables import facts_table, print_table

    described = describe(index)
    if plot is not None:
        draw_curves(plot, described.sides)
    if as_json:
        typer.echo(json.dumps(index_data(described), indent=2))
    else:
        print_table(facts_table(index_facts(described)))
        for target, side in described.sides.items():
            for table in curve_tables(target, side):
                print_table(table)
    for warning in calibration_warnings(described):
        typer.echo(f"warning: {warning}", err=True)
