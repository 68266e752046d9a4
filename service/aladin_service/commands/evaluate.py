"""``aladin evaluate`` and ``aladin calibrate``: measurements on a data set with captions."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import typer

from aladin_network.errors import InputError
from aladin_service.commands.options import (
    CheckpointArgument,
    DataArgument,
    JsonOption,
    RegionLabelsOption,
    RegionsOption,
    SplitOption,
    StrictOption,
    chosen_split,
    opened_regions,
)
from aladin_service.commands.progress import stderr_progress
from aladin_service.library.places import model_folder

IndexOption = Annotated[
    Path | None, typer.Option("--index", help="Also measure searches of this index.")
]
FoldsOption = Annotated[
    int,
    typer.Option(
        "--folds",
        min=0,
        help="Also average over N contiguous blocks of photos (COCO's 1K: 5). 0 or 1: do not.",
        metavar="N",
    ),
]
CurveOption = Annotated[
    Path | None,
    typer.Option(
        "--curve",
        metavar="FILE",
        dir_okay=False,
        help="Also measure the two stages of --index with more and more candidates, and plot "
        "recall against their number and against ms: .png, .svg or .pdf; .json has numbers.",
    ),
]
CurveCandidatesOption = Annotated[
    str | None,
    typer.Option(
        "--curve-candidates",
        metavar="N,N,...",
        help="Numbers of candidates on the curve; 1, the index's default and all items are "
        "always included. [default: 2,5,10,20,50,100,200,500]",
    ),
]


def evaluate(
    checkpoint: CheckpointArgument,
    data: DataArgument,
    split: SplitOption = "test",
    index: IndexOption = None,
    folds: FoldsOption = 0,
    curve: CurveOption = None,
    curve_candidates: CurveCandidatesOption = None,
    regions: RegionsOption = None,
    region_labels: RegionLabelsOption = None,
    strict: StrictOption = False,
    as_json: JsonOption = False,
) -> None:
    """Measure how well captions find photos, and photos captions.

    In: CHECKPOINT, and the photos and captions of DATA; with --index also an index of the same
    photos and captions, built with the same network. Out: on stdout recall at 1, 5 and 10 in
    percent, median and mean rank and rsum, in both directions, of the embeddings alone (matching),
    the alignment and the fused score of all pairs; for each head also how well it separates
    matching pairs from others (mean difference, cross-retrieval rank). With --folds also the mean
    over blocks. With --index also the two stages as served, how far they agree with an exhaustive
    search, and what they gain over matching, with its 95 % interval. With --curve also R@1 and rsum
    from one candidate, which is matching alone, to all, the exhaustive order, with their intervals
    and the search time.
    """
    from aladin_service.measure.evaluate import evaluate_system
    from aladin_service.reports.curve_plot import write_curve
    from aladin_service.reports.evaluation_report import (
        curve_data,
        curve_tables,
        evaluation_data,
        evaluation_lines,
        evaluation_table,
    )
    from aladin_service.reports.tables import print_table
    from aladin_training.comparison.data_sets import data_set_name
    from aladin_training.data.records import strict_data

    numbers = _curve_numbers(curve, curve_candidates, index)
    chosen = chosen_split(split)
    store = opened_regions(regions, region_labels)
    with strict_data(strict), stderr_progress() as progress:
        evaluation = evaluate_system(
            model_folder(checkpoint),
            data,
            chosen,
            index,
            progress,
            folds,
            numbers,
            store,
        )
    figures, of_index = evaluation_data(evaluation), evaluation.index
    measured = None if of_index is None else of_index.curve
    drawn = None if measured is None else curve_data(measured)
    if as_json:
        data_of_curve = {} if drawn is None else {"curve": drawn}
        typer.echo(json.dumps(figures | data_of_curve, indent=2))
    else:
        print_table(evaluation_table(f"{data}, split {split}", evaluation))
        for line in evaluation_lines(evaluation):
            typer.echo(line)
        for table in [] if measured is None else curve_tables(measured):
            print_table(table)
    if curve is not None and measured is not None:
        write_curve(curve, measured, f"{data_set_name(data)}, split {split}")


def _curve_numbers(
    curve: Path | None, candidates: str | None, index: Path | None
) -> Sequence[int] | None:
    """Return the numbers of candidates on the curve, or None if none is to be drawn."""
    from aladin_index.measure.curve import DEFAULT_NUMBERS, check_numbers
    from aladin_service.reports.curve_plot import check_curve_file

    if curve is None:
        if candidates is not None:
            raise InputError("--curve-candidates: expected also --curve, whose points they are")
        return None
    if index is None:
        raise InputError("--curve: expected also --index, whose searches it draws")
    check_curve_file(curve)
    numbers = DEFAULT_NUMBERS if candidates is None else _numbers(candidates)
    check_numbers(numbers)
    return numbers


def _numbers(words: str) -> list[int]:
    try:
        return [int(word) for word in words.split(",")]
    except ValueError:
        message = f"--curve-candidates: expected whole numbers and commas, got {words!r}"
        raise InputError(message) from None


ReportSplitOption = Annotated[
    str | None,
    typer.Option(
        "--report-split",
        help="Split of DATA to report on. [default: --split, each photo judged by models that "
        "were fitted without it]",
    ),
]
CalibratedIndexOption = Annotated[
    Path | None,
    typer.Option(
        "--index",
        help="Search the items of this index, built with the same network, and store the "
        "calibration there.",
    ),
]
FalseAlarmsOption = Annotated[
    float,
    typer.Option(
        "--false-alarms",
        help="Accepted share of queries with a match that are wrongly reported as having none.",
    ),
]


def calibrate(
    checkpoint: CheckpointArgument,
    data: DataArgument,
    split: SplitOption = "val",
    report_split: ReportSplitOption = None,
    index: CalibratedIndexOption = None,
    false_alarms: FalseAlarmsOption = 0.05,
    regions: RegionsOption = None,
    region_labels: RegionLabelsOption = None,
    strict: StrictOption = False,
    as_json: JsonOption = False,
) -> None:
    """Fit the probabilities of hits, and when nothing matches.

    In: CHECKPOINT, and the photos and captions of DATA. Every caption is a query for its photo,
    and every photo for its captions: once among all items and once without the right answers. So
    are nouns and noun phrases of the captions, for all photos whose captions say as much.
    Texts of foreign subjects are queries that nothing matches.
    Out: probabilities, fitted to the scores of these results and stored with the checkpoint, or
    with --index in a new generation of the index, live at once. An index built later copies the
    calibration of its checkpoint. On stdout: for each direction the expected calibration error of
    the hits of the first page, the AUROC of "is there a match at all", and how often answers say
    that nothing matches; on photos that the judging models were not fitted to.
    """
    from aladin_service.measure.calibrate import CalibrateOptions, calibrate_system
    from aladin_service.reports.show import calibration_rows, plain
    from aladin_service.reports.tables import facts_table, print_table
    from aladin_training.data.records import strict_data

    options = CalibrateOptions(
        split=chosen_split(split), report_split=report_split, false_alarms=false_alarms
    )
    store = opened_regions(regions, region_labels)
    with strict_data(strict), stderr_progress() as progress:
        report = calibrate_system(checkpoint, data, options, index, progress, store)
    calibration = report.calibration
    if as_json:
        content = {**plain(calibration), "generation": report.generation}
        typer.echo(json.dumps(content, indent=2))
        return
    print_table(facts_table(calibration_rows(calibration)))
    if report.generation is None:
        typer.echo(f"{checkpoint}: calibrated; indexes that are built from now on take it over")
    else:
        typer.echo(f"{index}: calibrated, generation {report.generation}")
