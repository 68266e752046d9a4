"""An index in Milvus does what an index of files does, on a real server."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from itertools import count
from pathlib import Path
from typing import ClassVar

import pytest

from benchmarks.milvus_server import MilvusServer
from index.remote.connect import connect
from index.remote.location import EngineLocation
from index.remote.push import PushSettings, push_index
from tests.index.backend_contract import Publish, RemoteContract

_NUMBERS: Iterator[int] = count()


class MilvusContract(RemoteContract):
    """Pushes each index under a name of its own to one server.

    Attributes:
        index_kind: of the first stage.
    """

    index_kind: ClassVar[str]

    @pytest.fixture(scope="class")
    @classmethod
    def publish(cls, server: MilvusServer, tmp_path_factory: pytest.TempPathFactory) -> Publish:
        def push(files: Path) -> Path:
            folder = tmp_path_factory.mktemp("remote") / "index"
            location = EngineLocation(
                engine="milvus", url=server.url, name=f"index{next(_NUMBERS)}", index=cls.index_kind
            )
            with closing(connect(location)) as client:
                push_index(files, folder, location, client, PushSettings(batch_size=16))
            return folder

        return push


@pytest.mark.cluster
class TestFlat(MilvusContract):
    """Compares with every item."""

    index_kind: ClassVar[str] = "flat"


@pytest.mark.cluster
class TestHnsw(MilvusContract):
    """Walks a graph; of few items it finds the nearest all the same."""

    index_kind: ClassVar[str] = "hnsw"
