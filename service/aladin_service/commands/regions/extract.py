"""``aladin regions extract``."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated

import typer

from aladin_service.commands.options import DETECTOR_HELP, Device, network_device
from aladin_service.commands.progress import stderr_progress


def extract(
    data: Annotated[Path, typer.Argument(metavar="DATA", help="Data set, of any format.")],
    detector: Annotated[str, typer.Option("--detector", metavar="D", help=DETECTOR_HELP)],
    out: Annotated[Path, typer.Option("--out", help="Folder of the regions.")],
    split: Annotated[
        str | None, typer.Option("--split", help="Only this split of the data set; else all of it.")
    ] = None,
    batch_size: Annotated[
        int, typer.Option("--batch-size", min=1, help="Photos that the detector gets at once.")
    ] = 8,
    readers: Annotated[
        int | None,
        typer.Option(
            "--readers",
            min=1,
            help="Threads that read and decode photos; else one a processor.",
            show_default=False,
        ),
    ] = None,
    device: Annotated[
        Device, typer.Option("--device", help="Where the detector runs.")
    ] = Device.cpu,
) -> None:
    """Find the regions of every photo of a data set, for training and indexing region models.

    In: the photos of DATA. Out: in the folder --out an npz file a photo, with `vectors`, `boxes`,
    `labels`, `image_size` and `detector`; a recipe's `regions` and --regions of the other commands
    take the folder. On stdout, how many. Photos that cannot be used are left out and named on
    stderr.

    Killed at any moment and run again with the same detector, the job goes on where it was.
    """
    from aladin_network.detectors.base import load_detector
    from aladin_training.data import iter_records
    from aladin_training.data.regions.extraction import extract_regions

    records = iter_records(data, split, require_captions=False)
    with stderr_progress() as progress:
        report = extract_regions(
            records,
            load_detector(detector, network_device(device)),
            out,
            batch_size=batch_size,
            readers=readers or os.cpu_count() or 1,
            progress=progress,
        )
    typer.echo(
        f"{out}: {report.written} written, {report.kept} were there, "
        f"{len(report.left_out)} left out"
    )
