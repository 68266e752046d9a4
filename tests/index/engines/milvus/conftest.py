"""One real Milvus server for all tests of this folder."""

from __future__ import annotations

from collections.abc import Generator
from pathlib import Path

import pytest

from benchmarks.lib.milvus_server import MilvusServer
from tests.milvus_needed import HAS_MILVUS, WITHOUT_MILVUS


@pytest.fixture(scope="session")
def server(tmp_path_factory: pytest.TempPathFactory) -> Generator[MilvusServer]:
    """A server with nothing in it; tests take names of their own."""
    if not HAS_MILVUS:
        pytest.skip(WITHOUT_MILVUS)
    folder: Path = tmp_path_factory.mktemp("milvus")
    with MilvusServer(folder) as server:
        yield server
