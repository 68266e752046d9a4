"""``aladin index tune``."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer

from aladin_service.commands.options import (
    Device,
    IndexArgument,
    PlotOption,
    RegionLabelsOption,
    RegionsOption,
    network_device,
    opened_regions,
)
from aladin_service.commands.progress import stderr_progress


def tune(
    index: IndexArgument,
    ann_recall: Annotated[
        float,
        typer.Option(
            "--ann-recall", help="Share of the exact nearest items that the first stage finds."
        ),
    ] = 0.99,
    fidelity: Annotated[
        float,
        typer.Option(
            "--fidelity", help="Share of the top hits of an exhaustive second stage to be kept."
        ),
    ] = 0.99,
    queries: Annotated[
        Path | None,
        typer.Option(
            "--queries",
            metavar="FILE",
            exists=True,
            help="Texts, photos or both to ask with: lines of text (.txt), or any source that an "
            "index is built from. [default: a sample of the index]",
        ),
    ] = None,
    at: Annotated[int, typer.Option("--at", min=1, help="Top hits that are compared.")] = 10,
    num_queries: Annotated[
        int, typer.Option("--num-queries", min=1, help="Queries that are asked, of each modality.")
    ] = 200,
    candidates: Annotated[
        int,
        typer.Option(
            "--candidates", min=1, metavar="MAX", help="The most candidates to be stored."
        ),
    ] = 1000,
    device: Annotated[
        Device,
        typer.Option(
            "--device",
            help="Where the network encodes --queries; the searches that are measured run on the "
            "processor.",
        ),
    ] = Device.cpu,
    regions: RegionsOption = None,
    region_labels: RegionLabelsOption = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON, not tables.")] = False,
    plot: PlotOption = None,
) -> None:
    """Measure how the index has to be searched for the quality that you ask for.

    In: INDEX. Out: a new generation, live at once, which shares the files of the one before and
    is searched as was found best: the width and oversampling of the first stage with which it
    finds --ann-recall of the exact nearest, in the least time, and the fewest candidates with
    which two-stage search keeps --fidelity of the top hits of scoring every item. On stdout, both
    curves. What could not be reached is said on stderr, and the best there is is stored.
    """
    from aladin_index.generations.info import describe
    from aladin_index.measure.tune import TuneOptions, tune_index
    from aladin_service.measure.tune_queries import queries_of
    from aladin_service.reports.index_plot import check_plot, curve_tables, curves_data, draw_curves
    from aladin_service.reports.tables import print_table

    if plot is not None:
        check_plot(plot)
    options = TuneOptions(
        ann_recall=ann_recall,
        fidelity=fidelity,
        at=at,
        num_queries=num_queries,
        max_candidates=candidates,
        device=network_device(device),
    )
    store = opened_regions(regions, region_labels)
    make_queries = None if queries is None else queries_of(queries, num_queries, store)
    with stderr_progress() as progress:
        report = tune_index(index, options, make_queries, progress)
    for warning in report.warnings:
        typer.echo(f"warning: {warning}", err=True)
    if plot is not None:
        draw_curves(plot, describe(index).sides)
    if as_json:
        data = {
            "generation": report.generation,
            **{target: curves_data(side) for target, side in report.sides.items()},
            "warnings": report.warnings,
        }
        typer.echo(json.dumps(data, indent=2))
        return
    for target, side in report.sides.items():
        for table in curve_tables(target, side):
            print_table(table)
    typer.echo(f"{index}: generation {report.generation}")
