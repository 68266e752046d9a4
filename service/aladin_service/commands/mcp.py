"""``aladin mcp``."""

from __future__ import annotations

import asyncio
import signal
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from aladin_network.errors import ConfigError, InputError, missing_package
from aladin_network.types import DeviceName, FirstStageName
from aladin_service.commands.options import (
    DetectorOption,
    FirstStageOption,
    SearchDeviceOption,
    WarmOption,
)
from aladin_service.commands.serve import ServedPhotosRootOption

if TYPE_CHECKING:
    from aladin_service.http.shared_state import ServiceState


def mcp(
    index: Annotated[
        Path | None,
        typer.Argument(
            metavar="INDEX", exists=True, file_okay=False, help="Index folder; omitted with --url."
        ),
    ] = None,
    url: Annotated[
        str | None,
        typer.Option(
            "--url",
            metavar="URL",
            help="URL of a running service, instead of INDEX; ALADIN_API_KEY is its API key.",
        ),
    ] = None,
    device: SearchDeviceOption = "cpu",
    first_stage: FirstStageOption = "faiss",
    warm: WarmOption = False,
    detector: DetectorOption = None,
    photos_root: ServedPhotosRootOption = None,
) -> None:
    """Offer an index to agents as tools, on stdin and stdout.

    In: INDEX, or the URL of a service; messages of the Model Context Protocol on stdin. An agent
    program starts this command itself, see docs/MCP.md. The index is only read. Settings are
    read from the environment variables ALADIN_..., as by aladin serve, which answers agents at
    /mcp.

    Out: answers on stdout, messages on stderr, until stdin is closed.
    """
    if (index is None) == (url is None):
        got = "neither" if index is None else "both"
        raise InputError(f"expected either INDEX or --url, got {got}")
    if find_spec("mcp") is None:
        raise ConfigError(missing_package("aladin mcp", "mcp", "mcp"))
    # Reading stdin cannot be cancelled, and there is nothing to finish: the index is only read.
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    if url is not None:
        asyncio.run(_offer_service(url))
        return
    assert index is not None
    asyncio.run(_offer_index(_open(index, device, first_stage, warm, detector, photos_root)))


async def _offer_service(url: str) -> None:
    from aladin_service.mcp.access import RemoteIndex
    from aladin_service.mcp.server import serve_stdio

    remote = RemoteIndex(url)
    try:
        await serve_stdio(remote)
    finally:
        await remote.close()


def _open(
    index: Path,
    device: DeviceName,
    first_stage: FirstStageName,
    warm: bool,
    detector: str | None,
    photos_root: Path | None,
) -> ServiceState:
    from aladin_service.work.process_setup import limit_kernel_cache

    limit_kernel_cache()  # before the next line imports torch, which reads it then
    from aladin_service.http.server import open_alone

    return open_alone(
        index,
        device=device,
        first_stage=first_stage,
        warm=warm,
        detector=detector,
        photos_root=photos_root,
    )


async def _offer_index(service: ServiceState) -> None:
    from aladin_service.http.agents import ServedIndex
    from aladin_service.mcp.server import serve_stdio

    await service.workers.start()
    try:
        await serve_stdio(ServedIndex(service))
    finally:
        await service.workers.stop()
