from __future__ import annotations

from pathlib import Path

import pytest

from aladin_index.changes.writer import ChangesWriter
from aladin_index.engines.milvus import EngineOptions
from aladin_index.engines.writer import EngineWriter
from aladin_index.format.layout import EngineLocation, write_location
from aladin_index.generations.reader import SearchIndex
from aladin_index.open import open_backend, open_writer
from aladin_network.errors import EngineUnavailableError, IndexNotReadyError
from tests.index.backend_contract import BackendContract
from tests.index.contract_index import Publish
from tests.index.engines.memory_engine import MemoryEngine, MemoryServer

LOCATION = EngineLocation(url="http://127.0.0.1:19530", name="photos")


class TestFiles(BackendContract):
    """An index of files, opened as an index is that may be anywhere."""

    @pytest.fixture(scope="class")
    @classmethod
    def publish(cls) -> Publish:
        return lambda files: files


def test_files_are_opened_where_no_engine_is_named(published: Path, tmp_path: Path) -> None:
    opened = open_backend(published, generation=1)
    assert isinstance(opened, SearchIndex)
    assert opened.generation == 1
    opened.close()
    assert isinstance(open_writer(published, "of a model"), ChangesWriter)
    with pytest.raises(IndexNotReadyError, match="no index here"):
        open_backend(tmp_path)


def test_the_engine_that_a_folder_names_is_reached_as_the_options_say(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_location(tmp_path, LOCATION)
    server = MemoryServer()
    asked: list[tuple[EngineLocation, EngineOptions | None]] = []
    clients: list[MemoryEngine] = []

    def connect(location: EngineLocation, options: EngineOptions | None) -> MemoryEngine:
        asked.append((location, options))
        clients.append(MemoryEngine(server))
        return clients[-1]

    monkeypatch.setattr("aladin_index.open.connect", connect)
    options = EngineOptions(timeout_s=2)
    with pytest.raises(IndexNotReadyError, match="nothing was pushed"):
        open_backend(tmp_path, engine=options)
    server.down = {"*"}
    with pytest.raises(EngineUnavailableError):
        open_backend(tmp_path)
    assert [client.closed for client in clients] == [True, True]  # nobody else would
    assert isinstance(open_writer(tmp_path, "of a model", engine=options), EngineWriter)
    assert asked == [(LOCATION, options), (LOCATION, None), (LOCATION, options)]
    assert not clients[-1].closed
