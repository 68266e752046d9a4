"""An index in an engine answers as the index of files that was pushed: the engine in memory."""

from __future__ import annotations

from collections.abc import Generator
from itertools import count
from pathlib import Path

import pytest

from aladin_index.engines.client import EngineOptions
from aladin_index.engines.push import PushSettings, push_index
from aladin_index.format.layout import EngineLocation
from tests.index.backend_contract import AgreementContract, Publish
from tests.index.engines.memory_engine import MemoryEngine, MemoryServer


class TestMemory(AgreementContract):
    """Pushes each index to a server of its own; the real one has `milvus/test_contract.py`."""

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

        def connect(location: EngineLocation, _: EngineOptions | None) -> MemoryEngine:
            return MemoryEngine(servers[location.name])

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr("aladin_index.open.connect", connect)
            yield push
