"""From a location to a client."""

from __future__ import annotations

import gc
import sys
from contextlib import closing
from pathlib import Path

import pytest

from aladin_index.engines.client import EngineOptions
from aladin_index.format.layout import EngineLocation
from aladin_index.open import connect
from aladin_network.errors import ConfigError, EngineError, EngineUnavailableError
from aladin_network.types import EngineKind
from tests.index.engines.qdrant.rest_server import RestServer

_NEEDED: list[tuple[EngineKind, str, str, list[str]]] = [
    ("qdrant", "qdrant_client", "qdrant", ["client_store", "connections"]),
    ("qdrant-edge", "qdrant_edge", "qdrant-edge", ["edge_store"]),
]


@pytest.mark.parametrize(("engine", "package", "extra", "importing"), _NEEDED)
def test_a_package_that_is_missing_is_named(
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    engine: EngineKind,
    package: str,
    extra: str,
    importing: list[str],
) -> None:
    for name in importing:
        monkeypatch.delitem(sys.modules, f"aladin_index.engines.qdrant.{name}", raising=False)
    monkeypatch.setitem(sys.modules, package, None)
    location = EngineLocation(engine=engine, url=f"file://{tmp_path}/engine", name="test")
    message = rf"needs the package {package}: pip install 'aladin-search\[{extra}\]'"
    with pytest.raises(ConfigError, match=message):
        connect(location, EngineOptions(url=location.url))


@pytest.mark.cluster  # collecting all garbage takes longer than the rest of these tests
# Qdrant's client leaves the file of the lock that it does not get to the garbage collector.
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
@pytest.mark.filterwarnings("ignore:unclosed file:ResourceWarning")
def test_a_folder_that_another_process_has_open_is_unavailable(tmp_path: Path) -> None:
    from qdrant_client import QdrantClient

    location = EngineLocation(engine="qdrant", url=f"file://{tmp_path}", name="test")
    # The folder is locked against other clients, of this process or of another.
    with (
        closing(QdrantClient(path=str(tmp_path))),
        pytest.raises(EngineUnavailableError, match="is open in another process"),
    ):
        connect(location, EngineOptions(url=location.url))
    gc.collect()
    connect(location, EngineOptions(url=location.url)).close()


def test_a_folder_that_cannot_be_read_is_an_engine_error(tmp_path: Path) -> None:
    (tmp_path / "meta.json").write_text("{")
    location = EngineLocation(engine="qdrant", url=f"file://{tmp_path}", name="test")
    with pytest.raises(EngineError, match=r"^qdrant: "):
        connect(location, EngineOptions(url=location.url))


def test_a_server_gets_the_key(rest: RestServer) -> None:
    location = EngineLocation(engine="qdrant", url=rest.url, name="test")
    with (
        pytest.warns(UserWarning, match="insecure connection"),
        closing(connect(location, EngineOptions(url=rest.url, token="a key"))) as client,
    ):
        client.check_health()
    assert [request.api_key for request in rest.requests] == ["a key"]
