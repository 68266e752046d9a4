"""``aladin regions``: precomputed regions for networks that read them."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated

import typer

from aladin_network.files import check_folder_writable
from aladin_network.types import DeviceName
from aladin_service.commands.help_style import CommandApp
from aladin_service.commands.options import DETECTOR_HELP, PartOfDataOption, network_device
from aladin_service.commands.progress import stderr_progress

app = CommandApp(
    help="Compute the regions that region networks read.",
)


@app.command("extract")
def extract(
    data: Annotated[Path, typer.Argument(metavar="DATA", help="Data set, of any format.")],
    detector: Annotated[str, typer.Option("--detector", metavar="D", help=DETECTOR_HELP)],
    out: Annotated[Path, typer.Option("--out", help="Folder for the regions.")],
    split: PartOfDataOption = None,
    batch_size: Annotated[
        int, typer.Option("--batch-size", min=1, help="Photos per batch of the detector.")
    ] = 8,
    readers: Annotated[
        int | None,
        typer.Option(
            "--readers",
            min=1,
            help="Threads that read and decode photos. [default: one per core]",
            show_default=False,
        ),
    ] = None,
    device: Annotated[
        DeviceName, typer.Option("--device", help="Where the detector runs.")
    ] = "cpu",
) -> None:
    """Find the regions of all photos of a data set.

    In: the photos of DATA. Out: one npz file per photo in the folder --out, with `vectors`,
    `boxes`, `labels`, `image_size` and `detector`; the key `regions` of a recipe and the option
    --regions of other commands accept the folder. The number of files is printed on stdout.
    Photos that cannot be used are skipped and named on stderr.

    The job can be killed at any moment: run again with the same detector, it continues.
    """
    from aladin_network.detectors.base import load_detector
    from aladin_training.data import iter_records
    from aladin_training.data.regions.extraction import extract_regions

    check_folder_writable(out)
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
        f"{out}: {report.written} written, {report.kept} were there, {len(report.skipped)} skipped"
    )
