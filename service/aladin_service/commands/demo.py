"""``aladin demo`` and ``aladin prepare``: a first index."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from aladin_network.files import check_folder_writable
from aladin_network.types import DeviceName
from aladin_service.commands.index.info import print_generation
from aladin_service.commands.options import building_device, set_log_format
from aladin_service.commands.progress import stderr_progress
from aladin_service.commands.serve import HostOption, PortOption
from aladin_service.library.places import model_folder


def demo(
    out: Annotated[
        Path, typer.Option("--out", help="Folder of the demo; completed steps are not repeated.")
    ] = Path("aladin-demo"),
    serve: Annotated[
        bool, typer.Option("--serve/--no-serve", help="Serve the index after printing the table.")
    ] = True,
    host: HostOption = "127.0.0.1",
    port: PortOption = 8000,
) -> None:
    """Run the whole pipeline in about 15 minutes, without any download.

    In: nothing. Out: in the folder --out a data set of drawn scenes with captions, a network
    trained on them and an index of the test scenes; on stdout a table with the results of each way
    to search; then the HTTP service of the index, until stopped.
    """
    from aladin_service.demo.run import run_demo
    from aladin_service.reports.tables import metrics_table, print_table

    set_log_format()
    if serve:
        from aladin_service.http.server import check_address

        check_address(host, port)  # now, because training takes minutes
    check_folder_writable(out)
    with stderr_progress() as progress:
        result = run_demo(out, progress)
    print_table(metrics_table("test scenes", result.rows))
    if serve:
        from aladin_service.http.server import serve_index
        from aladin_service.settings import settings_with
        from aladin_service.work.worker import WorkerPlan

        serve_index(WorkerPlan(index=result.index, settings=settings_with()), host, port)
    else:
        typer.echo(f"search it: aladin search {result.index} TEXT", err=True)


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
            "--model",
            metavar="MODEL",
            help="Network that encodes, as of `index build`. [default: the demo's]",
        ),
    ] = None,
    demo: Annotated[
        Path, typer.Option("--demo", help="Folder of the demo; completed steps are not repeated.")
    ] = Path("aladin-demo"),
    scenes: Annotated[
        int, typer.Option("--scenes", min=3, help="Scenes that the demo draws.")
    ] = 6000,
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
    set_log_format()
    checkpoint = None if model is None else model_folder(model)
    from aladin_service.demo.prepare import prepare_index

    with stderr_progress() as progress:
        report = prepare_index(
            index,
            demo,
            progress,
            photos=photos,
            model=checkpoint,
            scenes=scenes,
            device=building_device(device),
        )
    if report is not None:
        print_generation(index, report.generation, report.counts, report.skipped)
