"""``aladin prepare``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from aladin_service.commands.options import Device, network_device, set_log_format
from aladin_service.commands.progress import stderr_progress
from aladin_service.reports.index_facts import print_generation


def prepare(
    index: Annotated[
        Path, typer.Argument(metavar="INDEX", help="Folder of the index; made if it is missing.")
    ],
    photos: Annotated[
        Path | None,
        typer.Option(
            "--photos",
            metavar="SRC",
            help="Photos, with captions or without, as of `index build`. [default: the demo's]",
        ),
    ] = None,
    model: Annotated[
        Path | None,
        typer.Option(
            "--model", metavar="CHECKPOINT", help="Network that encodes. [default: the demo's]"
        ),
    ] = None,
    demo: Annotated[
        Path, typer.Option("--demo", help="Folder of the demo; what is done in it is not redone.")
    ] = Path("aladin-demo"),
    scenes: Annotated[
        int, typer.Option("--scenes", min=3, help="Scenes that the demo draws.")
    ] = 3000,
    device: Annotated[
        Device, typer.Option("--device", help="Where the network encodes the photos.")
    ] = Device.cpu,
) -> None:
    """See to it that there is an index to serve: the first job on a new machine.

    In: --photos and --model. Where there is no model, or its folder is empty, the network of the
    demo is trained in --demo; where there are no photos, the index is that of the demo's test
    scenes. Out: INDEX with a live generation; on stdout, what it holds.

    An index with a live generation is left as it is. Killed at any moment and run again, the job
    goes on where it was.
    """
    from aladin_service.preparation import prepare_index

    set_log_format()
    with stderr_progress() as progress:
        report = prepare_index(
            index,
            demo,
            progress,
            photos=photos,
            model=model,
            scenes=scenes,
            device=network_device(device),
        )
    if report is not None:
        print_generation(index, report.generation, report.counts, report.left_out)
