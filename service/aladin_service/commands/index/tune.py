"""``aladin index tune``."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer

from aladin_network.types import DeviceName
from aladin_service.commands.options import (
    IndexArgument,
    JsonOption,
    PlotOption,
    RegionLabelsOption,
    RegionsOption,
    network_device,
    opened_regions,
)
from aladin_service.commands.progress import stderr_progress

RecallOption = Annotated[
    float,
    typer.Option(
        "--ann-recall",
        help="Share of the exact nearest items that the first stage has to find.",
    ),
]
FidelityOption = Annotated[
    float,
    typer.Option("--fidelity", help="Share of the top hits of an exhaustive second stage to keep."),
]
QueriesOption = Annotated[
    Path | None,
    typer.Option(
        "--queries",
        metavar="FILE",
        exists=True,
        help="Texts, photos or both as queries: lines of text (.txt), or any source that an index "
        "is built from. [default: a sample of the index]",
    ),
]
AtOption = Annotated[int, typer.Option("--at", min=1, help="Number of top hits to compare.")]
NumQueriesOption = Annotated[
    int, typer.Option("--num-queries", min=1, help="Queries per modality.")
]
CandidatesOption = Annotated[
    int,
    typer.Option(
        "--candidates", min=1, metavar="MAX", help="Largest number of candidates to store."
    ),
]
QueryDeviceOption = Annotated[
    DeviceName,
    typer.Option(
        "--device",
        help="Where the network encodes --queries; the measured searches run on the CPU.",
    ),
]


def tune(
    index: IndexArgument,
    ann_recall: RecallOption = 0.99,
    fidelity: FidelityOption = 0.99,
    queries: QueriesOption = None,
    at: AtOption = 10,
    num_queries: NumQueriesOption = 200,
    candidates: CandidatesOption = 1000,
    device: QueryDeviceOption = "cpu",
    regions: RegionsOption = None,
    region_labels: RegionLabelsOption = None,
    as_json: JsonOption = False,
    plot: PlotOption = None,
) -> None:
    """Measure which search settings reach the requested quality.

    In: INDEX. Out: a new generation, live at once, which shares the files of the previous one and
    stores the best search settings: the width and oversampling of the first stage that find
    --ann-recall of the exact nearest items in the least time, and the fewest candidates with which
    two-stage search keeps --fidelity of the top hits of scoring every item. The measurements are
    printed on stdout. Goals that cannot be reached are reported on stderr, and the best settings
    found are stored.
    """
    from aladin_index.generations.info import describe
    from aladin_index.measure.tune import tune_index
    from aladin_index.measure.tune_options import TuneOptions
    from aladin_service.measure.tune_queries import queries_of
    from aladin_service.reports.index_plot import (
        check_plot,
        curve_tables,
        curves_data,
        draw_curves,
    )
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
        draw_curves(plot, describe(index).collections)
    if as_json:
        data = {
            "generation": report.generation,
            **{
                target: curves_data(collection) for target, collection in report.collections.items()
            },
            "warnings": report.warnings,
        }
        typer.echo(json.dumps(data, indent=2))
        return
    for target, collection in report.collections.items():
        for table in curve_tables(target, collection):
            print_table(table)
    typer.echo(f"{index}: generation {report.generation}")
