"""Indexes of one collection, kept in five ways, and the doors that lead to each."""

from __future__ import annotations

import json
from collections.abc import AsyncGenerator, Callable, Iterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager, closing
from dataclasses import dataclass
from pathlib import Path

import httpx
import pytest

import aladin_search
from aladin_index.building.builder import build_index
from aladin_index.engines.milvus import EngineOptions
from aladin_index.engines.push import PushSettings, push_index
from aladin_index.format.layout import EngineLocation
from aladin_index.open import connect as open_client
from aladin_network.checkpoint import save_checkpoint
from aladin_network.scoring.hub_correction import CORRECTION
from aladin_service.http.app import create_app
from aladin_service.item_sources import image_items, text_items
from aladin_service.observe.metrics import Metrics
from aladin_service.settings import ServiceSettings
from aladin_service.work.worker import WorkerPlan
from aladin_service.work.workers import ThreadWorkers
from benchmarks.lib.milvus_server import MilvusServer
from benchmarks.lib.small_collection import small_model
from tests.contract.cases import CAPTION_WORDS, PHOTOS, data_lines, write_picture
from tests.contract.doors import Ask, Pictures, by_command, by_tool, from_python, over_http
from tests.index.corrections import correction_of
from tests.index.engines.memory_engine import MemoryEngine
from tests.milvus_needed import STARTS_MILVUS
from tests.service.engine_world import EngineWorld

# How an index is kept. What was added and deleted until it holds the same items answers as built.
KINDS = (
    "files",
    "changed",
    "corrected",
    "engine",
    pytest.param("milvus", marks=STARTS_MILVUS),
)
STORED = {
    "files": "files",
    "changed": "files",
    "corrected": "corrected",
    "engine": "engine",
    "milvus": "engine",
}


@dataclass(frozen=True)
class Served:
    """An index, its HTTP service, and the pictures that it is searched with."""

    folder: Path
    service: Callable[[], AbstractAsyncContextManager[httpx.AsyncClient]]
    pictures: Pictures

    @asynccontextmanager
    async def door(self, name: str) -> AsyncGenerator[Ask]:
        """Open a door of this index by its name."""
        if name == "Python":
            with aladin_search.open(self.folder) as index:
                yield from_python(index, self.pictures)
        elif name == "command line":
            yield by_command(self.folder, self.pictures)
        else:
            async with self.service() as client:
                yield by_tool(client) if name == "MCP" else over_http(client, self.pictures)


@pytest.fixture(scope="session")
def anyio_backend() -> str:
    """The event loop of asynchronous tests."""
    return "asyncio"


@pytest.fixture(scope="module", autouse=True)
def exact_queries() -> Iterator[None]:
    """Encode queries in float32 at every door: values are compared."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("ALADIN_QUERY_PRECISION", "float32")
        yield


@pytest.fixture(scope="session")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The collection as JSON lines, with its pictures and those to search with beside it."""
    folder = tmp_path_factory.mktemp("contract")
    for name, seed in PHOTOS.items():
        write_picture(folder / f"{name}.png", seed)
    lines = [json.dumps(line) for line in data_lines(folder)]
    file = folder / "data.jsonl"
    file.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return file


@pytest.fixture(scope="module", params=KINDS)
def kind(request: pytest.FixtureRequest) -> str:
    """How the index is kept."""
    return request.param


@pytest.fixture(scope="module")
def served(
    kind: str,
    data: Path,
    tmp_path_factory: pytest.TempPathFactory,
    request: pytest.FixtureRequest,
) -> Iterator[Served]:
    """The index of a kind."""
    folder = tmp_path_factory.mktemp(kind)
    pictures = Pictures({name: data.parent / f"{name}.png" for name in PHOTOS})
    checkpoint, index = folder / "checkpoint", folder / "index"
    save_checkpoint(checkpoint, small_model(16, 16, CAPTION_WORDS))
    if kind == "corrected":
        photos = [data.parent / f"{number:02d}.png" for number in range(8)]
        correction_of(checkpoint, photos, 0.8).save(checkpoint / CORRECTION)
    _build(checkpoint, data, index, changed=kind == "changed")
    if kind == "milvus":
        server: MilvusServer = request.getfixturevalue("milvus_server")
        pushed, location = folder / "pushed", EngineLocation(url=server.url, name="doors")
        with closing(open_client(location)) as client:
            push_index(index, pushed, location, client, PushSettings())
        yield Served(pushed, lambda: _service(pushed), pictures)
        return
    if kind != "engine":
        yield Served(index, lambda: _service(index), pictures)
        return
    world = EngineWorld(folder / "engine")
    world.push(index)

    def connect(_: EngineLocation, __: EngineOptions | None) -> MemoryEngine:
        return MemoryEngine(world.server)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("aladin_index.open.connect", connect)
        yield Served(world.folder, world.service, pictures)


def _build(checkpoint: Path, data: Path, index: Path, *, changed: bool) -> None:
    """Build the index, or bring it to the same items by additions and deletions."""
    first = data
    if changed:
        lines = data.read_text(encoding="utf-8").splitlines()
        # Some items are missing, and others begin with the words of their neighbours.
        captions = [json.loads(line)["captions"] for line in lines]
        early = [json.loads(line) for line in lines[:18]]
        for number, line in enumerate(early[:6]):
            line["captions"] = captions[number + 1]
        first = data.with_name("early.jsonl")
        first.write_text("\n".join(map(json.dumps, early)) + "\n", encoding="utf-8")
    build_index(checkpoint, index, image_items(first, None), text_items(first, None))
    if changed:
        with aladin_search.open(index) as opened:
            opened.delete("album/07 boat?")
            opened.add(images=data, texts=data, on_duplicate="replace")


@asynccontextmanager
async def _service(index: Path) -> AsyncGenerator[httpx.AsyncClient]:
    settings, metrics = ServiceSettings(), Metrics()
    workers = ThreadWorkers(WorkerPlan(index=index, settings=settings).make(), settings, metrics)
    app = create_app(workers, settings, metrics)
    async with (
        app.router.lifespan_context(app),
        httpx.AsyncClient(
            transport=httpx.ASGITransport(app), base_url="http://localhost"
        ) as client,
    ):
        yield client
