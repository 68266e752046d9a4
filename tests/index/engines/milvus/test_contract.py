"""An index in Milvus does what an index of files does, on a real server."""

from __future__ import annotations

from contextlib import closing
from itertools import count
from pathlib import Path

import pytest

from aladin_index.engines.push import PushSettings, push_index
from aladin_index.format.layout import EngineLocation
from aladin_index.open import connect
from benchmarks.lib.milvus_server import MilvusServer
from tests.index.backend_contract import Publish, RemoteContract


@pytest.mark.cluster
class TestServer(RemoteContract):
    """Pushes each index under a name of its own; Milvus indexes none of so few items."""

    @pytest.fixture(scope="class")
    @classmethod
    def publish(cls, server: MilvusServer, tmp_path_factory: pytest.TempPathFactory) -> Publish:
        numbers = count()

        def push(files: Path) -> Path:
            folder = tmp_path_factory.mktemp("remote") / "index"
            name = f"contract{next(numbers)}"
            location = EngineLocation(url=server.url, name=name)
            with closing(connect(location)) as client:
                push_index(files, folder, location, client, PushSettings(batch_size=16))
            return folder

        return push
