"""What is added to an index in an engine and removed from it."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from aladin_index.changes.encoded import ItemBatch
from aladin_index.changes.writer import AddReport
from aladin_index.engines.engine_index import open_engine_index
from aladin_index.engines.milvus import read_generation
from aladin_index.engines.push import PushReport
from aladin_index.engines.writer import EngineWriter
from aladin_index.generations.reader import SearchIndex
from aladin_index.search.collection import FirstStageQuery
from aladin_network.checkpoint_files import Checkpoint
from aladin_network.errors import (
    DuplicateItemError,
    EngineUnavailableError,
    IndexNotReadyError,
    InputError,
)
from tests.index.engines.memory_engine import MemoryEngine, MemoryServer

MakeItems = Callable[..., ItemBatch]
IDS = ["a", "b", "c", "d"]


@pytest.fixture
def pushed(
    push: Callable[..., PushReport],
    made_up: MakeItems,
    write_made_up: Callable[..., int],
    tmp_path: Path,
) -> Path:
    """The folder of an index of four photos in an engine, without texts."""
    write_made_up(tmp_path / "files", "int8", images=made_up(IDS))
    push(tmp_path / "files")
    return tmp_path / "remote"


@pytest.fixture
def checkpoint(search_index: SearchIndex) -> Checkpoint:
    return search_index.checkpoint


@pytest.fixture
def writer(pushed: Path, server: MemoryServer, checkpoint: Checkpoint) -> EngineWriter:
    server.calls.clear()
    return EngineWriter(pushed, MemoryEngine(server), checkpoint.model_id)


def ids_of(server: MemoryServer) -> list[str]:
    return list(server.collections[1, "images"])


def test_added_items_are_stored_unchanged_with_rows_above_all_others(
    writer: EngineWriter, server: MemoryServer, made_up: MakeItems
) -> None:
    new = made_up(["x", "y"], city=["Pisa", "Lucca"])
    assert writer.add("images", new, "error") == AddReport(
        1, {"added": ["x", "y"], "replaced": [], "kept": []}
    )
    collection = server.collections[1, "images"]
    codec = read_generation(MemoryEngine(server), 1).codecs["images"]
    start = 0
    for place, item_id in enumerate(["x", "y"]):
        entry = collection[item_id]
        assert entry.item == new.items[place]._replace(row=entry.item.row)
        np.testing.assert_array_equal(entry.embedding, new.embeddings[place])
        end = start + int(new.lengths[place])
        for stored, expected in zip(
            entry.tokens or (), codec.pack(new.tokens[start:end]), strict=True
        ):
            np.testing.assert_array_equal(stored, expected)
        start = end
    writer.add("images", made_up(["z"]), "error")
    rows = [collection[item_id].item.row for item_id in (*IDS, "x", "y", "z")]
    assert rows == sorted(set(rows))
    assert rows[3] == 3
    assert rows[-1] < 2**63


def test_of_an_id_that_comes_twice_the_first_is_kept_or_the_second_replaces_it(
    writer: EngineWriter, server: MemoryServer, made_up: MakeItems
) -> None:
    one, other = made_up(["x"], seed=1), made_up(["x"], seed=2)
    both = ItemBatch(
        items=[*one.items, *other.items],
        embeddings=np.concatenate([one.embeddings, other.embeddings]),
        tokens=np.concatenate([one.tokens, other.tokens]),
        lengths=np.concatenate([one.lengths, other.lengths]),
    )
    with pytest.raises(DuplicateItemError):
        writer.add("images", both, "error")
    assert writer.add("images", both, "skip") == AddReport(
        1, {"added": ["x"], "replaced": [], "kept": ["x"]}
    )
    assert server.collections[1, "images"]["x"].item.text == "x 1"
    writer.delete("images", ["x"])
    assert writer.add("images", both, "replace") == AddReport(
        1, {"added": ["x"], "replaced": ["x"], "kept": []}
    )
    entry = server.collections[1, "images"]["x"]
    assert entry.item.text == "x 2"
    assert entry.tokens is not None
    assert entry.tokens.count == other.lengths[0]


def test_an_id_that_is_not_unicode_is_in_no_index(writer: EngineWriter) -> None:
    report = writer.delete("images", ["a", "nobody", "a", "\ud800"], ignore_missing=True)
    assert report == (1, ["a"], ["nobody", "\ud800"])
    assert writer.known("images", ["a", "b", "\ud800"]) == {"b"}


def test_a_generation_is_noted_as_changed_before_it_is(
    writer: EngineWriter, server: MemoryServer, made_up: MakeItems
) -> None:
    writer.delete("images", ["nobody"], ignore_missing=True)
    writer.add("images", made_up(["a"]), "skip")
    assert not read_generation(MemoryEngine(server), 1).changed
    server.down = {"upsert"}
    with pytest.raises(EngineUnavailableError):
        writer.add("images", made_up(["x"]), "error")
    assert read_generation(MemoryEngine(server), 1).changed
    server.down = set()
    server.calls.clear()
    writer.add("images", made_up(["x"]), "error")
    assert "write_record" not in server.calls


def test_items_that_are_not_unicode_are_refused_before_any_is_added(
    writer: EngineWriter, server: MemoryServer, made_up: MakeItems
) -> None:
    new = made_up(["x", "y"])
    broken = [new.items[0], new.items[1]._replace(metadata={"a": "\ud800"})]
    with pytest.raises(InputError, match=r"item 'y': .* Unicode"):
        writer.add("images", replace(new, items=broken), "error")
    assert ids_of(server) == IDS


def test_a_new_generation_is_written_to_from_when_it_is_live(
    writer: EngineWriter,
    push: Callable[..., PushReport],
    server: MemoryServer,
    made_up: MakeItems,
    tmp_path: Path,
) -> None:
    push(tmp_path / "files")
    assert writer.add("images", made_up(["x"]), "error").generation == 2
    assert ids_of(server) == IDS
    assert "x" in server.collections[2, "images"]


def test_nothing_is_written_where_nothing_is_live(server: MemoryServer, tmp_path: Path) -> None:
    writer = EngineWriter(tmp_path, MemoryEngine(server), "any")
    with pytest.raises(IndexNotReadyError, match="nothing was pushed to milvus"):
        writer.known("images", ["a"])


def test_items_that_were_added_elsewhere_with_the_same_row_are_both_found(
    writer: EngineWriter,
    pushed: Path,
    server: MemoryServer,
    made_up: MakeItems,
    checkpoint: Checkpoint,
) -> None:
    new = made_up(["x", "y"])
    writer.add("images", new, "error")
    collection = server.collections[1, "images"]
    same = collection["x"].item.row
    collection["y"] = collection["y"]._replace(item=collection["y"].item._replace(row=same))
    with open_engine_index(pushed, MemoryEngine(server), checkpoint=checkpoint) as index:
        for query in new.embeddings:
            found = index.collection("images")
            rows = found.order(FirstStageQuery(query, 6, 6)).rows
            assert len(set(rows.tolist())) == 6
            items = found.items.by_rows(rows.tolist())
            assert {item.id for item in items} == {*IDS, "x", "y"}
            expected = sorted(collection.values(), key=lambda each: -float(each.embedding @ query))
            assert [item.id for item in items] == [each.item.id for each in expected]
            lengths = [each.tokens.count for each in expected if each.tokens is not None]
            assert found.lengths(rows).tolist() == lengths


def test_rows_grow_however_the_clock_is_set(
    writer: EngineWriter,
    server: MemoryServer,
    made_up: MakeItems,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    times = itertools.chain([5_000_000_000, 5_000_000_000, 1_000_000], itertools.repeat(10**15))
    monkeypatch.setattr("time.time_ns", lambda: next(times))
    for item_id in "wxyz":
        writer.add("images", made_up([item_id]), "error")
    rows = [server.collections[1, "images"][item_id].item.row for item_id in "wxyz"]
    assert rows == sorted(set(rows))


def test_a_mark_of_change_that_failed_is_written_by_the_next_change(
    writer: EngineWriter, server: MemoryServer
) -> None:
    server.down = {"write_record"}
    with pytest.raises(EngineUnavailableError):
        writer.delete("images", ["a"])
    assert ids_of(server) == IDS
    server.down = set()
    writer.delete("images", ["a"])
    assert ids_of(server) == IDS[1:]
    assert read_generation(MemoryEngine(server), 1).changed
