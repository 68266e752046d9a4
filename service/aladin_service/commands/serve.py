"""``aladin serve``."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Annotated

import typer

from aladin_network.errors import IndexNotReadyError
from aladin_service.commands.options import (
    INDEX_HELP,
    DetectorOption,
    SearchDeviceOption,
    WarmOption,
    checked_index,
    network_device,
    set_log_format,
)
from aladin_service.observe.logs import LogFormat

_LOG = logging.getLogger(__name__)

HostOption = Annotated[str, typer.Option("--host", help="Address to listen on.")]
PortOption = Annotated[
    int, typer.Option("--port", min=0, max=65535, help="Port to listen on; 0 takes a free one.")
]


ReadOnlyOption = Annotated[
    bool, typer.Option("--read-only", help="Refuse to add and to delete items.")
]
KeysOption = Annotated[
    Path | None,
    typer.Option(
        "--keys",
        metavar="FILE",
        dir_okay=False,
        help="Require a key of this file; aladin key creates them.",
    ),
]
AllowAnonymousOption = Annotated[
    bool,
    typer.Option("--allow-anonymous", help="Allow searching and reading without a key."),
]
WorkersOption = Annotated[
    int | None,
    typer.Option(
        "--workers",
        min=1,
        help="Processes that encode and search, sharing one copy of the index in memory; 1: "
        "threads of one process. Default: ALADIN_WORKERS.",
        show_default=False,
    ),
]
WaitOption = Annotated[
    bool,
    typer.Option(
        "--wait",
        help="Start before INDEX has a live generation: /readyz reports this, and searches are "
        "answered as soon as one is published.",
    ),
]
ServedPhotosRootOption = Annotated[
    Path | None,
    typer.Option(
        "--photos-root",
        metavar="DIR",
        exists=True,
        file_okay=False,
        help="Show only photos inside this folder, links resolved, and uploaded ones. Default: "
        "ALADIN_PHOTOS_ROOT.",
        show_default=False,
    ),
]
LogFormatOption = Annotated[
    LogFormat | None,
    typer.Option(
        "--log-format",
        help="Log for people (text) or programs (json). Default: ALADIN_LOG_FORMAT.",
        show_default=False,
    ),
]


def serve(
    index: Annotated[
        Path,
        typer.Argument(
            metavar="INDEX", help=f"{INDEX_HELP} With --wait also a folder for an index."
        ),
    ],
    host: HostOption = "127.0.0.1",
    port: PortOption = 8000,
    read_only: ReadOnlyOption = False,
    keys: KeysOption = None,
    allow_anonymous: AllowAnonymousOption = False,
    workers: WorkersOption = None,
    device: SearchDeviceOption = "cpu",
    warm: WarmOption = False,
    detector: DetectorOption = None,
    wait: WaitOption = False,
    photos_root: ServedPhotosRootOption = None,
    log_format: LogFormatOption = None,
) -> None:
    """Serve searches, additions and deletions over HTTP until stopped.

    In: INDEX, which contains its model; a folder without a live generation is an error unless
    --wait is given. New generations, and additions and deletions by other processes, are picked up
    at run time. An index kept by an engine can be served by any number of services; while the
    engine is unavailable they keep running and report it at /readyz. The FILE of API keys is
    reloaded when it changes; without it the service listens on the loopback address only, where
    everything is permitted. Settings are read from the environment variables ALADIN_..., see
    service/SERVING.md.

    Out: the HTTP service, with a search page at / and API documentation at /docs; its log on
    stderr.
    """
    from aladin_service.work.process_setup import limit_kernel_cache

    limit_kernel_cache()  # before torch is imported, which reads it then
    set_log_format(log_format)
    index = _found(index, wait=wait)

    from aladin_service.settings import settings_with

    settings = settings_with(
        workers,
        read_only=read_only or None,
        keys_file=keys,
        allow_anonymous=allow_anonymous or None,
        detector=detector,
        photos_root=photos_root,
    )
    if device == "cuda":
        network_device(device)  # refused here, not by each worker
    if settings.workers > 1:
        # An installation that it refuses is refused here, once, and not by each process.
        import aladin_index.ann  # noqa: F401  # pyright: ignore[reportUnusedImport]
        from aladin_service.work.process_start import prepare_processes

        prepare_processes(index, device)  # it imports modules while this process does so, too
    if device == "auto":
        _warn_without_gpu()
    from aladin_service.http.server import serve_index
    from aladin_service.work.worker import WorkerPlan

    plan = WorkerPlan(index=index, settings=settings, device=device, warm=warm)
    serve_index(plan, host, port, wait=wait)


def _found(index: Path, *, wait: bool) -> Path:
    """Return the index to serve, or the folder in which one is waited for."""
    try:
        return checked_index(index)
    except IndexNotReadyError as error:
        if wait and index.is_dir():
            return index
        raise IndexNotReadyError(
            f"{error}; use --wait to start the service before an index is published"
        ) from None


def _warn_without_gpu() -> None:
    """Say at once that FAISS for GPUs finds none, for the index may be waited for."""
    from aladin_index.devices.faiss_card import supports_cards
    from aladin_index.devices.search_device import has_cuda

    if supports_cards() and not has_cuda():
        _LOG.warning(
            "searching on the CPU: FAISS for GPUs is installed, but PyTorch finds no CUDA device; "
            "a container sees one by NVIDIA's container toolkit"
        )
