"""``aladin correct``: the hubness correction of a network."""

from __future__ import annotations

import json
from typing import Annotated

import typer

from aladin_network.types import DIRECTIONS
from aladin_service.commands.options import (
    ALL_SPLITS,
    CheckpointArgument,
    DataArgument,
    JsonOption,
    RegionLabelsOption,
    RegionsOption,
    StrictOption,
    chosen_split,
    opened_regions,
)
from aladin_service.commands.progress import stderr_progress

TrainSplitOption = Annotated[
    str,
    typer.Option(
        "--split",
        help=f"Split of DATA that CHECKPOINT was trained on; {ALL_SPLITS!r} takes every photo. "
        "Of a checkpoint whose recipe keeps a selection split apart, the recipe's own.",
    ),
]


def correct(
    checkpoint: CheckpointArgument,
    data: DataArgument,
    split: TrainSplitOption = "train",
    regions: RegionsOption = None,
    region_labels: RegionLabelsOption = None,
    strict: StrictOption = False,
    as_json: JsonOption = False,
) -> None:
    """Fit the hubness correction of a network.

    Items that are near to queries of any kind are found less often with it. In: CHECKPOINT, and
    the training photos and captions of DATA. Out: a bank of 1,000 of these photos and 2,000
    captions, and for each stage and direction how many of the nearest of the bank count and how
    much (nearest neighbor normalization), stored with the checkpoint. The constants are chosen on
    the selection split of the checkpoint's recipe, or without one on an eighth of the photos. On
    stdout: the constants, and recalls on the photos that they were chosen on; aladin evaluate
    reports on other photos. An index that is built later corrects its items, also those that are
    added to it. Probabilities of uncorrected scores are removed: run aladin calibrate afterwards.
    """
    from aladin_service.measure.correct import correct_system
    from aladin_service.reports.evaluation_report import metrics_data
    from aladin_service.reports.show import plain, rows
    from aladin_service.reports.tables import (
        MetricsRow,
        facts_table,
        metrics_table,
        print_table,
    )
    from aladin_training.data.records import strict_data

    store = opened_regions(regions, region_labels)
    with strict_data(strict), stderr_progress() as progress:
        report = correct_system(checkpoint, data, chosen_split(split), progress, store)
    constants = plain(report.constants)
    facts = {
        "bank": {"data": constants["data"], "photos": report.photos, "texts": report.texts},
        "selection": {"split": constants["selection"], "photos": report.chosen_on},
        "constants": {direction: constants[direction] for direction in DIRECTIONS},
        "fusion": constants["fusion"],
    }
    if as_json:
        metrics = {name: metrics_data(each) for name, each in report.metrics.items()}
        typer.echo(json.dumps(facts | {"metrics": metrics}, indent=2))
    else:
        title = f"{report.chosen_on} photos that the constants were chosen on"
        systems = [MetricsRow(name, metrics) for name, metrics in report.metrics.items()]
        print_table(metrics_table(title, systems))
        print_table(facts_table([*rows(facts)]))
        typer.echo(f"stored in {checkpoint}")
    if report.dropped_calibration:
        typer.echo(
            "warning: the checkpoint's probabilities were those of uncorrected scores and are "
            "removed; aladin calibrate fits them anew",
            err=True,
        )
