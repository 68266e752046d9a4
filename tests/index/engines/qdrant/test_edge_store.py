"""What Qdrant Edge does not do by itself: folders that are whole, one process, a crash."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Generator
from contextlib import closing
from pathlib import Path

import numpy as np
import pytest

from aladin_index.engines.client import EngineOptions
from aladin_index.engines.qdrant.edge_store import EdgeStore
from aladin_index.engines.qdrant.store import CollectionShape, Point, QdrantSettings
from aladin_index.format.layout import EngineLocation
from aladin_index.open import connect
from aladin_network.errors import EngineError, EngineUnavailableError

SHAPE = CollectionShape(embedding_dim=4, token_dim=4, token_vectors="none")
KEYS = [f"00000000-0000-0000-0000-{number:012d}" for number in range(1000)]
# Puts points in one by one, and says which are in.
WRITER = """
import sys
from pathlib import Path
import numpy as np
from aladin_index.engines.qdrant.edge_store import EdgeStore
from aladin_index.engines.qdrant.store import Point
from aladin_index.engines.qdrant.store import QdrantSettings

store = EdgeStore("qdrant-edge", Path(sys.argv[1]), QdrantSettings())
for number in range(1000):
    key = f"00000000-0000-0000-0000-{number:012d}"
    store.upsert("a", [Point(key, {"n": number}, np.full(4, number, np.float32))])
    print(number, flush=True)
"""


@pytest.fixture
def store(tmp_path: Path) -> Generator[EdgeStore]:
    with closing(EdgeStore("qdrant-edge", tmp_path / "edge", QdrantSettings())) as opened:
        yield opened


@pytest.mark.cluster
def test_what_was_put_in_is_there_after_a_crash(store: EdgeStore, tmp_path: Path) -> None:
    store.create("a", SHAPE)
    store.close()
    writer = subprocess.Popen(
        [sys.executable, "-c", WRITER, str(tmp_path / "edge")], stdout=subprocess.PIPE, text=True
    )
    try:
        assert writer.stdout is not None
        for _ in range(30):
            writer.stdout.readline()
        with pytest.raises(EngineUnavailableError, match="is open in another process"):
            store.count("a")
    finally:
        writer.kill()
        rest = writer.communicate()[0].split()

    acknowledged = int(rest[-1]) + 1 if rest else 30
    assert store.count("a") in (acknowledged, acknowledged + 1)
    points = store.retrieve("a", KEYS[:acknowledged], fields=["n"], with_embeddings=True)
    assert sorted(point.payload["n"] for point in points) == list(range(acknowledged))
    for point in points:
        np.testing.assert_array_equal(point.embedding, np.full(4, point.payload["n"]))


def test_a_collection_that_was_half_made_or_half_removed_is_none(
    store: EdgeStore, tmp_path: Path
) -> None:
    assert store.collections() == []
    store.create("a", SHAPE)
    store.upsert("a", [Point(KEYS[0], {"n": 1}, np.ones(4, np.float32))])
    for name in ("a", "b"):
        (tmp_path / "edge" / f"{name}.partial" / "segments").mkdir(parents=True)

    assert store.collections() == ["a"]
    store.create("b", SHAPE)
    assert store.count("b") == 0
    store.drop("a")
    store.drop("a")
    assert sorted(path.name for path in (tmp_path / "edge").iterdir()) == ["b"]


def test_names_are_kept(store: EdgeStore, tmp_path: Path) -> None:
    store.create("a", SHAPE)
    store.create("b", None)
    store.set_alias("x", "a")
    store.set_alias("y", "b")
    store.set_alias("x", "b")
    with closing(EdgeStore("qdrant-edge", tmp_path / "edge", QdrantSettings())) as other:
        assert (other.alias("x"), other.alias("y"), other.alias("z")) == ("b", "b", None)
    (tmp_path / "edge" / "aliases.json").write_text("{")
    with pytest.raises(EngineError, match=r"aliases\.json"):
        store.alias("x")


def test_a_fault_of_edge_is_an_engine_error(store: EdgeStore) -> None:
    store.create("a", SHAPE)
    with pytest.raises(EngineError, match="expected dim: 4, got 5"):
        store.upsert("a", [Point(KEYS[0], {}, np.ones(5, np.float32))])
    with pytest.raises(EngineError, match="there is no such collection"):
        store.count("b")


def test_one_folder_is_of_one_engine(tmp_path: Path) -> None:
    edge = EngineLocation(engine="qdrant-edge", url=f"file://{tmp_path}/a%20b", name="test")
    local = EngineLocation(engine="qdrant", url=edge.url, name="test")
    with closing(connect(edge)) as engine:
        engine.write_record(1, {})
        with pytest.raises(EngineError, match="is open as a folder of qdrant-edge"):
            connect(local, EngineOptions(url=local.url))
    assert (tmp_path / "a b" / "test_000001_record").is_dir()
