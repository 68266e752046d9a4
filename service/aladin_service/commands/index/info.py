"""``aladin index info`` and ``verify``: what an index contains, and whether it is intact."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from aladin_network.errors import InputError
from aladin_service.commands.options import IndexArgument, PlotOption
from aladin_service.commands.progress import stderr_progress

if TYPE_CHECKING:
    from aladin_index.encode.source_items import PhotoPlaces
    from aladin_index.format.skipped import SkippedItem
    from aladin_index.generations.info import LocalFacts
    from aladin_network.types import Target
    from aladin_training.data.folder_rules import FolderRules


def info(
    index: IndexArgument,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON, not tables.")] = False,
    plot: PlotOption = None,
) -> None:
    """Show what an index contains.

    In: INDEX. Out: on stdout its generation, model, sizes, first stages and pending changes, and
    the measurements of both stages made when it was built and tuned, and of its probabilities when
    they were fitted. For an index kept by an engine: its location, what was pushed and what is
    there now.
    """
    from aladin_index.format.layout import location_of
    from aladin_service.reports.index_plot import check_plot, curve_tables, draw_curves
    from aladin_service.reports.show import index_rows, plain
    from aladin_service.reports.tables import facts_table, print_table

    if plot is not None:
        if location_of(index) is not None:
            raise InputError("--plot: expected an index of files, whose curves were measured")
        check_plot(plot)
    facts = _facts(index)
    if plot is not None:
        draw_curves(plot, facts.collections)
    if as_json:
        typer.echo(json.dumps(plain(facts), indent=2))
        return
    print_table(facts_table(index_rows(facts)))
    for target, collection in facts.collections.items():
        for table in curve_tables(target, collection):
            print_table(table)


def _facts(index: Path) -> LocalFacts:
    """Describe an index of files, or ask its vector database."""
    from aladin_index.engines.engine_index import describe_engine_index
    from aladin_index.format.layout import location_of
    from aladin_index.generations.info import describe
    from aladin_index.open import connect
    from aladin_service.settings import read_settings

    location = location_of(index)
    if location is None:
        return describe(index)
    with closing(connect(location, read_settings().engine_options)) as client:
        return describe_engine_index(index, location, client)


def verify(index: IndexArgument) -> None:
    """Verify the checksum of every file of an index.

    In: INDEX. Out: on stdout, what was compared; on a mismatch, exit code 1 and the names of the
    damaged files on stderr.
    """
    from aladin_index.generations.verify import verify_index

    with stderr_progress() as progress:
        report = verify_index(index, progress)
    generations = ", ".join(str(generation) for generation in report.generations)
    typer.echo(f"{index}: sound, {report.files} files, generations {generations}")


def print_generation(
    index: Path,
    generation: int,
    counts: Mapping[Target, int],
    skipped: Sequence[SkippedItem] = (),
    more: str = "",
) -> None:
    """Print the contents of the live generation and, on stderr, the skipped items."""
    from aladin_index.generations.info import describe
    from aladin_network.photos.skipped import skipped_lines

    for line in skipped_lines(skipped):
        typer.echo(line, err=True)
    for warning in describe(index).warnings():
        typer.echo(f"warning: {warning}", err=True)
    held = ", ".join(f"{count} {target}" for target, count in counts.items())
    missing = f", {len(skipped)} skipped" if skipped else ""
    typer.echo(f"{index}: generation {generation}, {held}{missing}{more}")


def warn_of_places(places: PhotoPlaces, rules: FolderRules | None = None) -> None:
    """Print, on stderr, which photos are outside of their source's folder, and what was skipped."""
    if rules is not None and rules.summary is not None:
        typer.echo(f"not looked at: {rules.summary}", err=True)
    if places.warning is not None:
        typer.echo(f"warning: {places.warning}", err=True)
