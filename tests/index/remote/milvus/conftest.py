"""One real Milvus server for all tests of this folder."""

from __future__ import annotations

from collections.abc import Generator
from importlib.util import find_spec
from pathlib import Path

import pytest

from benchmarks.milvus_server import MilvusServer


@pytest.fixture(scope="session")
def server(tmp_path_factory: pytest.TempPathFactory) -> Generator[MilvusServer]:
    """A server with nothing in it; tests take names of their own."""
    if find_spec("milvus") is None or find_spec("pymilvus") is None:
        pytest.skip("needs the packages milvus and pymilvus")
    folder: Path = tmp_path_factory.mktemp("milvus")
    with MilvusServer(folder) as server:
        yield server
