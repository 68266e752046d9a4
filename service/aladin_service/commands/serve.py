"""``aladin serve``."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from aladin_service.commands.options import (
    DetectorOption,
    Device,
    FirstStage,
    FirstStageOption,
    SearchDeviceOption,
    WarmOption,
    set_log_format,
)


class LogFormat(StrEnum):
    """How a log is written."""

    text = "text"
    json = "json"


HostOption = Annotated[str, typer.Option("--host", help="Address to listen on.")]
PortOption = Annotated[
    int, typer.Option("--port", min=0, max=65535, help="Port to listen on; 0 takes a free one.")
]


def serve(
    index: Annotated[
        Path,
        typer.Argument(
            metavar="INDEX", exists=True, file_okay=False, help="Folder of an index, or for one."
        ),
    ],
    host: HostOption = "127.0.0.1",
    port: PortOption = 8000,
    read_only: Annotated[
        bool, typer.Option("--read-only", help="Refuse to add and to delete items.")
    ] = False,
    keys: Annotated[
        Path | None,
        typer.Option(
            "--keys",
            metavar="FILE",
            dir_okay=False,
            help="Answer those alone that have a key of this file; aladin key makes them.",
        ),
    ] = None,
    allow_anonymous: Annotated[
        bool,
        typer.Option("--allow-anonymous", help="Let everybody search and read without a key."),
    ] = False,
    workers: Annotated[
        int | None,
        typer.Option(
            "--workers",
            min=1,
            help="Processes that encode and search, on one copy of the index in memory; 1: threads "
            "of one process. If omitted, as ALADIN_WORKERS says.",
            show_default=False,
        ),
    ] = None,
    device: SearchDeviceOption = Device.cpu,
    first_stage: FirstStageOption = FirstStage.faiss,
    warm: WarmOption = False,
    detector: DetectorOption = None,
    wait: Annotated[
        bool,
        typer.Option(
            "--wait",
            help="Start before INDEX has a live generation: /readyz says so, and searches are "
            "answered from the moment one is published.",
        ),
    ] = False,
    photos_root: Annotated[
        Path | None,
        typer.Option(
            "--photos-root",
            metavar="DIR",
            exists=True,
            file_okay=False,
            help="Show only photos inside of this folder, after all links are followed, and those "
            "that were uploaded. If omitted, as ALADIN_PHOTOS_ROOT says.",
            show_default=False,
        ),
    ] = None,
    log_format: Annotated[
        LogFormat | None,
        typer.Option(
            "--log-format",
            help="Log for people, or for programs; if omitted, as ALADIN_LOG_FORMAT says.",
            show_default=False,
        ),
    ] = None,
) -> None:
    """Answer searches over HTTP until stopped, and add and delete items.

    In: INDEX, which holds its model too; a folder without a live generation is an error, unless
    --wait is given. Later generations, and what other processes add and delete, are taken up
    while it runs. Of an index that an engine keeps, any number of services may answer; while the
    engine is away they run and say so at /readyz. FILE of API keys is read again when it changes;
    without one the service listens on this machine's own address only, where everybody may do
    everything. Settings are read from the environment variables ALADIN_..., see
    service/SERVING.md.

    Out: the HTTP service, with a page to search at / and its description at /docs; its log on
    stderr.
    """
    from aladin_service.work.process_setup import limit_kernel_cache

    limit_kernel_cache()  # before the next line imports torch, which reads it then
    from aladin_service.http.server import serve_index

    set_log_format(None if log_format is None else log_format.value)
    serve_index(
        index,
        host,
        port,
        worker_count=workers,
        read_only=read_only,
        keys=keys,
        allow_anonymous=allow_anonymous,
        device=device.value,
        first_stage=first_stage.value,
        warm=warm,
        detector=detector,
        wait=wait,
        photos_root=photos_root,
    )
