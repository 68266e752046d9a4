"""An index in Milvus does what an index of files does, on a real server."""

from __future__ import annotations

from contextlib import closing
from itertools import count, cycle
from pathlib import Path

import pytest

from benchmarks.milvus_server import MilvusServer
from index.remote.connect import connect
from index.remote.location import EngineLocation
from index.remote.push import PushSettings, push_index
from tests.index.backend_contract import Publish, RemoteContract


@pytest.mark.cluster
class TestServer(RemoteContract):
    """Pushes each index under a name of its own; of so few items all kinds find the nearest."""

    @pytest.fixture(scope="class")
    @classmethod
    def publish(cls, server: MilvusServer, tmp_path_factory: pytest.TempPathFactory) -> Publish:
        numbers, kinds = count(), cycle(["flat", "hnsw"])

        def push(files: Path) -> Path:
            folder = tmp_path_factory.mktemp("remote") / "index"
            name, kind = f"contract{next(numbers)}", next(kinds)
            location = EngineLocation(engine="milvus", url=server.url, name=name, index=kind)
            with closing(connect(location)) as client:
                push_index(files, folder, location, client, PushSettings(batch_size=16))
            return folder

        return push
