"""``aladin index info``."""

from __future__ import annotations

import json
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from service.commands.index.arguments import IndexArgument, PlotOption

if TYPE_CHECKING:
    from index.remote.location import EngineLocation


def info(
    index: IndexArgument,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON, not tables.")] = False,
    plot: PlotOption = None,
) -> None:
    """Say what an index holds.

    In: INDEX. Out: on stdout its generation, model, sizes, first stages and pending changes, what
    was measured of both stages when it was built and when it was tuned, and of its probabilities
    when they were fitted; on stderr, where these were fitted among far more or fewer items. Of an
    index that an engine keeps, where it is, what was pushed and what is there now.
    """
    from index.info import describe
    from index.remote.location import location_of
    from service.reports.index_curves import curve_tables
    from service.reports.index_facts import calibration_warnings, index_data, index_facts
    from service.reports.index_plot import check_plot, draw_curves
    from service.reports.tables import facts_table, print_table

    location = location_of(index)
    if location is not None:
        _engine_info(index, location, as_json=as_json, plot=plot)
        return
    if plot is not None:
        check_plot(plot)
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


def _engine_info(
    index: Path, location: EngineLocation, *, as_json: bool, plot: Path | None
) -> None:
    """Say what an engine has of an index."""
    from aladin.errors import InputError
    from index.remote.connect import connect
    from index.remote.remote_info import describe_remote
    from service.reports.engine_facts import engine_index_data, engine_index_facts
    from service.reports.index_curves import curve_tables
    from service.reports.tables import facts_table, print_table
    from service.settings import read_settings

    if plot is not None:
        raise InputError("--plot: expected an index of files, whose curves were measured")
    with closing(connect(location, read_settings().engine_options)) as client:
        described = describe_remote(index, location, client)
    if as_json:
        typer.echo(json.dumps(engine_index_data(described), indent=2))
        return
    print_table(facts_table(engine_index_facts(described)))
    for target, side in described.sides.items():
        for table in curve_tables(target, side):
            print_table(table)
