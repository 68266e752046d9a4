"""Qdrant in each of its forms: a server's interface, the local mode and Edge."""

from __future__ import annotations

from collections.abc import Generator
from pathlib import Path

import pytest

from aladin_index.engines.client import EngineOptions
from aladin_index.engines.qdrant.client import QdrantEngine
from aladin_index.format.layout import EngineLocation
from aladin_index.open import connect
from tests.index.engines.qdrant.rest_server import RestServer, rest_server


@pytest.fixture
def rest() -> Generator[RestServer]:
    """A server with Qdrant's interface."""
    with rest_server() as server:
        yield server


# By default Edge alone: that an index agrees with its files is tested on the local mode.
@pytest.fixture(
    params=[
        pytest.param("server", marks=pytest.mark.cluster),
        pytest.param("local", marks=pytest.mark.cluster),
        "edge",
    ]
)
def location(request: pytest.FixtureRequest, tmp_path: Path) -> EngineLocation:
    """Where an index is, for each form."""
    if request.param == "server":
        server: RestServer = request.getfixturevalue("rest")
        return EngineLocation(engine="qdrant", url=server.url, name="test")
    engine = "qdrant" if request.param == "local" else "qdrant-edge"
    return EngineLocation(engine=engine, url=f"file://{tmp_path}/engine", name="test")


@pytest.fixture
def engine(location: EngineLocation) -> Generator[QdrantEngine]:
    """A client for each form."""
    client = connect(location, EngineOptions(url=location.url, timeout_s=5, retries=0))
    assert isinstance(client, QdrantEngine)
    yield client
    client.close()
