"""``aladin mcp``."""

from __future__ import annotations

import asyncio
import signal
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from aladin_network.errors import InputError, need_packages
from aladin_network.types import DeviceName
from aladin_service.commands.options import (
    INDEX_HELP,
    DetectorOption,
    SearchDeviceOption,
    UrlOption,
    WarmOption,
    checked_index,
)
from aladin_service.commands.serve import ServedPhotosRootOption

if TYPE_CHECKING:
    from aladin_service.http.middleware import LayeredApplication


def mcp(
    index: Annotated[
        Path | None,
        typer.Argument(metavar="INDEX", help=f"{INDEX_HELP} Omitted with --url."),
    ] = None,
    url: UrlOption = None,
    device: SearchDeviceOption = "cpu",
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
    need_packages("aladin mcp", "mcp")
    # Reading stdin cannot be cancelled, and there is nothing to finish: the index is only read.
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    if url is not None:
        asyncio.run(_offer_service(url))
        return
    assert index is not None
    asyncio.run(_offer_index(_open(checked_index(index), device, warm, detector, photos_root)))


async def _offer_service(url: str) -> None:
    from aladin_service.client.clients import AsyncAladinClient
    from aladin_service.client.connection import RetryPolicy
    from aladin_service.mcp.tools import make_server

    # An agent waits for the answer, and can ask again.
    async with AsyncAladinClient(url, retries=RetryPolicy(attempts=3, total_s=30.0)) as client:
        await make_server(client).run_stdio_async()


def _open(
    index: Path,
    device: DeviceName,
    warm: bool,
    detector: str | None,
    photos_root: Path | None,
) -> LayeredApplication:
    from aladin_service.work.process_setup import limit_kernel_cache

    limit_kernel_cache()  # before the next line imports torch, which reads it then
    from aladin_service.http.server import open_alone
    from aladin_service.settings import settings_with
    from aladin_service.work.worker import WorkerPlan

    settings = settings_with(1, detector=detector, photos_root=photos_root)
    return open_alone(WorkerPlan(index=index, settings=settings, device=device, warm=warm))


async def _offer_index(app: LayeredApplication) -> None:
    from aladin_service.http.agents import client_of
    from aladin_service.mcp.tools import make_server

    async with app.router.lifespan_context(app):
        await make_server(client_of(app)).run_stdio_async()
