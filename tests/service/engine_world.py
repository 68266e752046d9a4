"""An index that an engine in memory keeps, and services of it, for tests."""

from __future__ import annotations

import copy
import shutil
import threading
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import httpx
from fastapi import FastAPI

from aladin_index.devices.search_device import SearchDevice
from aladin_index.engines.guard import OnCall, ignore_call
from aladin_index.engines.milvus import EngineClient, EngineOptions, EngineQuery, FoundItem
from aladin_index.engines.push import PushSettings, push_index
from aladin_index.format.layout import EngineLocation
from aladin_network.errors import EngineUnavailableError
from aladin_service.http.app import create_app
from aladin_service.observe.metrics import Metrics
from aladin_service.photos.photo_bytes import ThumbnailCache
from aladin_service.search.encoder import QueryEncoder
from aladin_service.settings import ServiceSettings
from aladin_service.work.hot_swap import LiveIndex, Opening
from aladin_service.work.sources import EngineAccess
from aladin_service.work.worker import Worker
from aladin_service.work.workers import ThreadWorkers
from tests.index.engines.memory_engine import MemoryEngine, MemoryServer

LOCATION = EngineLocation(url="http://127.0.0.1:6333", name="tests")
# Between two looks at the engine: tests wait for some.
POLL_S = 0.01


class SlowEngine(MemoryEngine):
    """A client whose searches may hang until their time is up.

    Attributes:
        timeout_s: of a search that hangs.
        hangs: set while they do.
        hung: searches that did.
    """

    def __init__(self, server: MemoryServer, timeout_s: float) -> None:
        super().__init__(server)
        self.timeout_s = timeout_s
        self.hangs = threading.Event()
        self.hung = 0
        self._released = threading.Event()

    def search(self, query: EngineQuery) -> list[FoundItem]:
        if self.hangs.is_set():
            self.hung += 1
            self._released.wait(self.timeout_s)
            raise EngineUnavailableError(self.kind, "no answer in time")
        return super().search(query)


@dataclass
class EngineWorld:
    """An engine with an index.

    Attributes:
        folder: that stands for the index.
        server: of the engine.
    """

    folder: Path
    server: MemoryServer = field(default_factory=MemoryServer)

    def copy(self, folder: Path) -> EngineWorld:
        """Return an engine of its own with the same index."""
        shutil.copytree(self.folder, folder)
        return EngineWorld(folder, copy.deepcopy(self.server))

    def push(self, index: Path) -> int:
        """Publish an index of files as a new generation; the earlier one stays."""
        client = MemoryEngine(self.server)
        settings = PushSettings(discard_changes=True)
        return push_index(index, self.folder, LOCATION, client, settings).generation

    def live_index(
        self,
        client: EngineClient | None = None,
        *,
        poll_s: float = POLL_S,
        on_call: OnCall = ignore_call,
    ) -> LiveIndex:
        """Follow the index; not opened yet."""
        access = EngineAccess(
            poll_s=poll_s,
            on_call=on_call,
            connect=partial(_connect, client or MemoryEngine(self.server)),
        )
        return LiveIndex(self.folder, Opening(access=access))

    @asynccontextmanager
    async def service(
        self, client: EngineClient | None = None, **settings: Any
    ) -> AsyncGenerator[httpx.AsyncClient]:
        """Serve the index over HTTP."""
        chosen, metrics = ServiceSettings(**settings), Metrics()
        live = self.live_index(client, on_call=metrics.engine_call)
        worker = Worker(
            live,
            SearchDevice(),
            QueryEncoder(chosen.query_limits),
            ThumbnailCache(0),
            ThumbnailCache(0),
        )
        app = create_app(ThreadWorkers(worker, chosen, metrics), chosen, metrics)
        async with app.router.lifespan_context(app), _client(app) as http:
            yield http


def _connect(
    client: EngineClient, location: EngineLocation, options: EngineOptions
) -> EngineClient:
    del location, options
    return client


def _client(app: FastAPI) -> httpx.AsyncClient:
    return httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://localhost")
