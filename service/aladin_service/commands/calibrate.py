"""``aladin calibrate``."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer

from aladin_service.commands.options import (
    SPLIT_HELP,
    RegionLabelsOption,
    RegionsOption,
    chosen_split,
    opened_regions,
)
from aladin_service.commands.progress import stderr_progress


def calibrate(
    checkpoint: Annotated[Path, typer.Argument(metavar="CHECKPOINT", help="Folder of a network.")],
    data: Annotated[
        Path, typer.Argument(metavar="DATA", help="Data set with captions, of any format.")
    ],
    split: Annotated[str, typer.Option("--split", help=SPLIT_HELP)] = "val",
    report_split: Annotated[
        str | None,
        typer.Option(
            "--report-split",
            help="Split of DATA to report on. [default: --split, each photo judged by models that "
            "were fitted without it]",
        ),
    ] = None,
    index: Annotated[
        Path | None,
        typer.Option(
            "--index",
            help="Search the items of this index, built with the same network, and store the "
            "calibration there.",
        ),
    ] = None,
    prior: Annotated[
        float, typer.Option("--prior", help="Share of queries that have a match, as you expect it.")
    ] = 0.5,
    false_alarms: Annotated[
        float,
        typer.Option(
            "--false-alarms",
            help="Share of queries that have a match whose answer may say that nothing matches.",
        ),
    ] = 0.05,
    regions: RegionsOption = None,
    region_labels: RegionLabelsOption = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON, not tables.")] = False,
    plot: Annotated[
        Path | None,
        typer.Option("--plot", metavar="FILE.png", help="Draw the reliability diagrams there."),
    ] = None,
) -> None:
    """Learn how likely a hit is right, and whether there is a match at all.

    In: CHECKPOINT, and the photos and captions of DATA. Every caption asks for its photo, and
    every photo for its captions: once among all items and once with the right answers taken out.
    Out: probabilities, fitted to the scores of these answers and stored with the checkpoint, or
    with --index in a new generation of the index, live at once. An index that is built later
    takes over what its checkpoint has. On stdout: expected calibration error, Brier score and
    log loss of the hits of the first page, of the best hit and of "is there a match at all", and
    the AUROC of the latter beside plain thresholds on the scores, each with its 95 % interval;
    all of photos that the models which judge them never saw.
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
