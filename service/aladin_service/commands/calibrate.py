"""``aladin calibrate``."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer

from aladin_service.commands.options import (
    CheckpointArgument,
    DataArgument,
    JsonOption,
    RegionLabelsOption,
    RegionsOption,
    SplitOption,
    chosen_split,
    opened_regions,
)
from aladin_service.commands.progress import stderr_progress

ReportSplitOption = Annotated[
    str | None,
    typer.Option(
        "--report-split",
        help="Split of DATA to report on. [default: --split, each photo judged by models that "
        "were fitted without it]",
    ),
]
IndexOption = Annotated[
    Path | None,
    typer.Option(
        "--index",
        help="Search the items of this index, built with the same network, and store the "
        "calibration there.",
    ),
]
PriorOption = Annotated[
    float, typer.Option("--prior", help="Expected share of queries that have a match.")
]
FalseAlarmsOption = Annotated[
    float,
    typer.Option(
        "--false-alarms",
        help="Share of queries with a match that may be answered by: nothing matches.",
    ),
]
ReliabilityPlotOption = Annotated[
    Path | None,
    typer.Option("--plot", metavar="FILE.png", help="Draw the reliability diagrams there."),
]


def calibrate(
    checkpoint: CheckpointArgument,
    data: DataArgument,
    split: SplitOption = "val",
    report_split: ReportSplitOption = None,
    index: IndexOption = None,
    prior: PriorOption = 0.5,
    false_alarms: FalseAlarmsOption = 0.05,
    regions: RegionsOption = None,
    region_labels: RegionLabelsOption = None,
    as_json: JsonOption = False,
    plot: ReliabilityPlotOption = None,
) -> None:
    """Fit the probabilities of hits, and that anything matches.

    In: CHECKPOINT, and the photos and captions of DATA. Every caption is a query for its photo,
    and every photo for its captions: once among all items and once without the right answers.
    Out: probabilities, fitted to the scores of these results and stored with the checkpoint, or
    with --index in a new generation of the index, live at once. An index built later copies the
    calibration of its checkpoint. On stdout: expected calibration error, Brier score and log loss
    of the hits of the first page, of the best hit and of "is there a match at all", and the AUROC
    of the latter beside plain thresholds on the scores, each with its 95 % interval; all of them
    on photos that the judging models were not fitted to.
    """
    from aladin_service.measure.calibrate import CalibrateOptions, calibrate_system
    from aladin_service.reports.calibration_report import (
        calibration_data,
        calibration_lines,
        calibration_tables,
        check_plot,
        draw_reliability,
    )
    from aladin_service.reports.tables import print_table

    options = CalibrateOptions(
        split=chosen_split(split),
        report_split=report_split,
        prior=prior,
        false_alarms=false_alarms,
    )
    if plot is not None:
        check_plot(plot)
    store = opened_regions(regions, region_labels)
    with stderr_progress() as progress:
        report = calibrate_system(checkpoint, data, options, index, progress, store)
    if plot is not None:
        draw_reliability(plot, report.calibration)
    if as_json:
        typer.echo(json.dumps(calibration_data(report), indent=2))
        return
    for table in calibration_tables(report.calibration):
        print_table(table)
    for line in calibration_lines(report, index or checkpoint):
        typer.echo(line)
