"""``aladin evaluate``."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer

from service.progress import stderr_progress
from service.splits import SPLIT_HELP, chosen_split


def evaluate(
    checkpoint: Annotated[Path, typer.Argument(metavar="CHECKPOINT", help="Folder of a network.")],
    data: Annotated[
        Path, typer.Argument(metavar="DATA", help="Data set with captions, of any format.")
    ],
    split: Annotated[str, typer.Option("--split", help=SPLIT_HELP)] = "test",
    index: Annotated[
        Path | None, typer.Option("--index", help="Also measure the search through this index.")
    ] = None,
    folds: Annotated[
        int,
        typer.Option(
            "--folds",
            min=0,
            help="Also average over N contiguous blocks of photos, COCO's 1K: 5. 0 or 1: do not.",
            metavar="N",
        ),
    ] = 0,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON, not a table.")] = False,
) -> None:
    """Measure how well captions find their photos, and photos their captions.

    In: CHECKPOINT, and the photos and captions of DATA; with --index also an index of the same
    photos and captions, built with the same network. Out: on stdout recall at 1, 5 and 10 in
    percent, median and mean rank and rsum, both ways, of the embeddings alone (matching), the
    alignment and the fused score of all pairs; for each head also how far it keeps pairs that
    belong together from others (mean difference, cross-retrieval rank). With --folds also the
    mean over blocks. With --index also the two stages as served, how far they agree with an
    exhaustive search, and what they gain over matching, with its 95 % interval.
    """
    from service.evaluation import evaluate_system
    from service.reports.evaluation_report import (
        evaluation_data,
        evaluation_lines,
        evaluation_table,
    )
    from service.reports.tables import print_table

    with stderr_progress() as progress:
        evaluation = evaluate_system(checkpoint, data, chosen_split(split), index, progress, folds)
    if as_json:
        typer.echo(json.dumps(evaluation_data(evaluation), indent=2))
        return
    print_table(evaluation_table(f"{data}, split {split}", evaluation))
    for line in evaluation_lines(evaluation):
        typer.echo(line)
