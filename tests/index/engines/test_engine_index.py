"""Opening an index in an engine, and its description."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from aladin_index.changes.encoded import ItemBatch
from aladin_index.engines.engine_index import describe_engine_index, open_engine_index
from aladin_index.engines.milvus import read_generation
from aladin_index.engines.push import PushReport
from aladin_index.engines.record import CHANGED, MANIFEST, GenerationRecord
from aladin_index.engines.writer import EngineWriter
from aladin_index.generations.reader import SearchIndex
from aladin_network.errors import (
    EngineUnavailableError,
    IndexCorruptError,
    IndexMismatchError,
    IndexNotReadyError,
    NoSuchTargetError,
)
from tests.index.engines.conftest import LOCATION
from tests.index.engines.memory_engine import MemoryEngine, MemoryServer

Push = Callable[..., PushReport]


def test_the_live_generation_is_opened_and_stays(
    push: Push, published: Path, server: MemoryServer, tmp_path: Path, search_index: SearchIndex
) -> None:
    push(published)
    client = MemoryEngine(server)
    with open_engine_index(tmp_path / "remote", client) as index:
        assert index.generation == 1
        assert index.checkpoint.model_id == search_index.checkpoint.model_id
        push(published)
        assert index.generation == 1
        assert index.collection("images").count == 23
        with open_engine_index(tmp_path / "remote", MemoryEngine(server)) as newer:
            assert newer.generation == 2
        index.check_health()
        server.down = {"check_health"}
        with pytest.raises(EngineUnavailableError):
            index.check_health()
    assert client.closed


def test_a_collection_that_was_not_pushed_is_refused(
    push: Push,
    server: MemoryServer,
    made_up: Callable[..., ItemBatch],
    write_made_up: Callable[..., int],
    tmp_path: Path,
) -> None:
    write_made_up(tmp_path / "files", images=made_up(["a"]))
    push(tmp_path / "files")
    with (
        open_engine_index(tmp_path / "remote", MemoryEngine(server)) as index,
        pytest.raises(NoSuchTargetError, match="no texts, only images"),
    ):
        index.collection("texts")


@pytest.mark.parametrize("problem", ["nothing", "unfinished", "gone", "model", "cut", "down"])
def test_an_index_that_cannot_be_opened_closes_its_client(
    push: Push, published: Path, server: MemoryServer, tmp_path: Path, problem: str
) -> None:
    push(published)
    folder, client = tmp_path / "remote", MemoryEngine(server)
    kind: type[Exception] = IndexNotReadyError
    if problem == "nothing":
        server.live, message = None, "nothing was pushed to milvus yet"
    elif problem == "unfinished":
        del server.records[1][MANIFEST]
        message = "generation 1 is missing or incomplete"
    elif problem == "gone":
        server.live, message = 7, "generation 7 is missing"
    elif problem == "model":
        (folder / "model" / "model.safetensors").unlink()
        kind, message = IndexCorruptError, "missing"
    elif problem == "cut":
        server.records[1][MANIFEST] = server.records[1][MANIFEST][:100]
        kind, message = IndexCorruptError, "milvus: generation 1: its record cannot be read"
    else:
        server.down, kind, message = {"*"}, EngineUnavailableError, "no answer"
    with pytest.raises(kind, match=message):
        open_engine_index(folder, client)
    assert client.closed


def test_another_model_is_refused(
    push: Push, published: Path, server: MemoryServer, tmp_path: Path, search_index: SearchIndex
) -> None:
    push(published)
    other = replace(search_index.checkpoint, model_id="another")
    with pytest.raises(IndexMismatchError, match="got another"):
        open_engine_index(tmp_path / "remote", MemoryEngine(server), checkpoint=other)


@pytest.mark.parametrize("dtype", ["float16", "4bit"])
def test_a_record_is_read_as_it_was_written(
    push: Push,
    server: MemoryServer,
    made_up: Callable[..., ItemBatch],
    write_made_up: Callable[..., int],
    tmp_path: Path,
    dtype: str,
) -> None:
    ids = [f"item {number}" for number in range(20)]
    write_made_up(tmp_path / "files", dtype, images=made_up(ids), texts=made_up(ids))
    push(tmp_path / "files")
    record = read_generation(MemoryEngine(server), 1)
    assert record.pieces() == server.records[1]
    changed = GenerationRecord.read(record.with_changes().pieces(), "again")
    assert (record.changed, changed.changed) == (False, True)
    assert changed.pieces() == record.pieces() | {CHANGED: b"1"}
    codec = record.codecs["images"]
    assert (codec.centroids is None, codec.feedback is None) == (dtype == "float16",) * 2

    pieces = record.pieces()
    del pieces["source.json"]
    with pytest.raises(IndexCorruptError, match=r"has no 'source\.json'"):
        GenerationRecord.read(pieces, "generation 1")
    older = pieces[MANIFEST].replace(b'"schema_version": 1', b'"schema_version": 2')
    with pytest.raises(IndexMismatchError, match="schema version: expected 1, got 2"):
        GenerationRecord.read({**record.pieces(), MANIFEST: older}, "generation 1")


def test_a_description_counts_items_and_changes(
    push: Push,
    published: Path,
    server: MemoryServer,
    tmp_path: Path,
    search_index: SearchIndex,
    made_up: Callable[..., ItemBatch],
) -> None:
    push(published)
    push(published)
    model_id = search_index.checkpoint.model_id
    folder, client = tmp_path / "remote", MemoryEngine(server)
    facts = describe_engine_index(folder, LOCATION, client)
    assert (facts.path, facts.engine) == (folder, LOCATION)
    assert (facts.generation, facts.generations, facts.model.id) == (2, [1, 2], model_id)
    counts = {target: each.count for target, each in facts.collections.items()}
    assert (counts, facts.changed) == ({"images": 23, "texts": 16}, False)
    EngineWriter(folder, client, model_id).add("images", made_up(["x"]), "error")
    facts = describe_engine_index(folder, LOCATION, client)
    images = facts.collections["images"]
    assert (images.count, images.built, facts.changed) == (24, 23, True)
    assert np.isclose(images.ann.recall, 1)
