"""``aladin prepare``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from aladin_network.types import DeviceName
from aladin_service.commands.index.reports import print_generation
from aladin_service.commands.options import network_device, set_log_format
from aladin_service.commands.progress import stderr_progress


def prepare(
    index: Annotated[
        Path,
        typer.Argument(metavar="INDEX", help="Folder of the index; created if it does not exist."),
    ],
    photos: Annotated[
        Path | None,
        typer.Option(
            "--photos",
            metavar="SRC",
            help="Photos with or without captions, as of `index build`. [default: the demo's]",
        ),
    ] = None,
    model: Annotated[
        Path | None,
        typer.Option(
            "--model", metavar="CHECKPOINT", help="Network that encodes. [default: the demo's]"
        ),
    ] = None,
    demo: Annotated[
        Path, typer.Option("--demo", help="Folder of the demo; completed steps are not repeated.")
    ] = Path("aladin-demo"),
    scenes: Annotated[
        int, typer.Option("--scenes", min=3, help="Scenes that the demo draws.")
    ] = 3000,
    device: Annotated[
        DeviceName, typer.Option("--device", help="Where the network encodes the photos.")
    ] = "cpu",
) -> None:
    """Create the index unless it exists: first job of a new machine.

    In: --photos and --model. Without a model, or if its folder is empty, the demo's network is
    trained in --demo; without photos, the index is that of the demo's test scenes. Out: INDEX with
    a live generation, whose contents are printed on stdout.

    An index with a live generation is not changed. The job can be killed at any moment: run again,
    it continues.
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
