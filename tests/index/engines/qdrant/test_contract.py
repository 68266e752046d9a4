"""An index in Qdrant does what an index of files does, over each form of Qdrant."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from itertools import count
from pathlib import Path
from typing import ClassVar

import pytest

from aladin_index.engines.client import EngineOptions
from aladin_index.engines.push import PushSettings, push_index
from aladin_index.format.layout import EngineLocation
from aladin_index.open import connect
from aladin_network.types import EngineKind
from tests.index.backend_contract import AgreementContract, RemoteContract
from tests.index.contract_index import ContractIndex, Publish
from tests.index.engines.qdrant.rest_server import rest_server


class QdrantContract(ContractIndex):
    """Pushes each index under a name of its own to one engine."""

    orders_text: ClassVar[bool] = False
    kind: ClassVar[EngineKind] = "qdrant"

    @pytest.fixture(scope="class")
    @classmethod
    def url(cls, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
        """Where the engine is."""
        yield f"file://{tmp_path_factory.mktemp('engine')}"

    @pytest.fixture(scope="class")
    @classmethod
    def publish(cls, url: str, tmp_path_factory: pytest.TempPathFactory) -> Publish:
        numbers = count()

        def push(files: Path) -> Path:
            folder = tmp_path_factory.mktemp("remote") / "index"
            location = EngineLocation(engine=cls.kind, url=url, name=f"index{next(numbers)}")
            with closing(connect(location, EngineOptions(url=url))) as client:
                push_index(files, folder, location, client, PushSettings(batch_size=16))
            return folder

        return push


class TestLocalModeAgrees(QdrantContract, AgreementContract):
    """The client's local mode, in short: the one of all forms that is tested by default."""


@pytest.mark.cluster
class TestLocalMode(QdrantContract, RemoteContract):
    """The client's local mode."""


@pytest.mark.cluster
class TestEdge(QdrantContract, RemoteContract):
    """Qdrant's own engine in this process."""

    kind: ClassVar[EngineKind] = "qdrant-edge"


@pytest.mark.cluster
class TestServer(QdrantContract, RemoteContract):
    """A server's interface, over HTTP."""

    @pytest.fixture(scope="class")
    @classmethod
    def url(cls) -> Iterator[str]:
        with rest_server() as server:
            yield server.url
