"""An index in an engine does what an index of files does: in memory, and in a real Milvus."""

from __future__ import annotations

from collections.abc import Generator
from contextlib import closing
from itertools import count
from pathlib import Path

import pytest

from aladin_index.engines.milvus import EngineOptions
from aladin_index.engines.push import PushSettings, push_index
from aladin_index.format.layout import EngineLocation
from aladin_index.open import connect
from benchmarks.lib.milvus_server import MilvusServer
from tests.index.backend_contract import BackendContract
from tests.index.contract_index import Publish
from tests.index.engines.memory_engine import MemoryEngine, MemoryServer


class TestMemory(BackendContract):
    """Pushes each index to a server of its own."""

    @pytest.fixture(scope="class")
    @classmethod
    def publish(cls, tmp_path_factory: pytest.TempPathFactory) -> Generator[Publish]:
        servers: dict[str, MemoryServer] = {}
        numbers = count()

        def push(files: Path) -> Path:
            folder = tmp_path_factory.mktemp("remote") / "index"
            location = EngineLocation(url="http://127.0.0.1:1", name=f"index{next(numbers)}")
            client = MemoryEngine(servers.setdefault(location.name, MemoryServer()))
            push_index(files, folder, location, client, PushSettings(batch_size=16))
            return folder

        def remember(location: EngineLocation, _: EngineOptions | None) -> MemoryEngine:
            return MemoryEngine(servers[location.name])

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr("aladin_index.open.connect", remember)
            yield push


@pytest.mark.cluster
class TestMilvus(BackendContract):
    """Pushes each index under a name of its own; Milvus indexes none of so few items."""

    @pytest.fixture(scope="class")
    @classmethod
    def publish(
        cls, milvus_server: MilvusServer, tmp_path_factory: pytest.TempPathFactory
    ) -> Publish:
        numbers = count()

        def push(files: Path) -> Path:
            folder = tmp_path_factory.mktemp("remote") / "index"
            location = EngineLocation(url=milvus_server.url, name=f"contract{next(numbers)}")
            with closing(connect(location)) as client:
                push_index(files, folder, location, client, PushSettings(batch_size=16))
            return folder

        return push
