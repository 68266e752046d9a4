"""What is special to changes of an index in an engine: rows, marks of change, generations."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from aladin_index.encode.encoded import ItemBatch
from aladin_index.engines.engine_index import open_engine_index
from aladin_index.engines.milvus import read_generation
from aladin_index.engines.push import PushReport
from aladin_index.engines.writer import EngineWriter
from aladin_index.generations.reader import SearchIndex
from aladin_index.search.collection import FirstStageQuery
from aladin_network.errors import EngineUnavailableError, IndexNotReadyError, InputError
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
def writer(pushed: Path, server: MemoryServer, search_index: SearchIndex) -> EngineWriter:
    server.calls.clear()
    return EngineWriter(pushed, MemoryEngine(server), search_index.checkpoint.model_id)


def ids_of(server: MemoryServer) -> list[str]:
    return list(server.collections[1, "images"])


def test_rows_grow_however_the_clock_is_set(
    writer: EngineWriter,
    server: MemoryServer,
    made_up: MakeItems,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    times = itertools.chain([5_000_000_000, 5_000_000_000, 1_000_000], itertools.repeat(10**15))
    monkeypatch.setattr("time.time_ns", lambda: next(times))
    for added in (["u", "v"], ["w"], ["x"], ["y"], ["z"]):
        writer.add("images", made_up(added), "error")
    rows = [server.collections[1, "images"][item_id].item.row for item_id in (*IDS, *"uvwxyz")]
    assert rows == sorted(set(rows))
    assert (rows[3], rows[-1] < 2**63) == (3, True)


def test_of_an_id_that_comes_twice_the_second_replaces_the_first_tokens_included(
    writer: EngineWriter, server: MemoryServer, made_up: MakeItems
) -> None:
    new = made_up(["one", "other"])
    both = replace(new, items=[new.items[0], new.items[1]._replace(id="one")])
    report = writer.add("images", both, "replace")
    assert (report.ids["added"], report.ids["replaced"]) == (["one"], ["one"])
    entry = server.collections[1, "images"]["one"]
    assert entry.item.text == "other 0" and entry.tokens is not None
    assert entry.tokens.count == new.lengths[1]


def test_a_generation_is_noted_as_changed_once_and_before_it_is(
    writer: EngineWriter, server: MemoryServer, made_up: MakeItems
) -> None:
    def changed() -> bool:
        return read_generation(MemoryEngine(server), 1).changed

    writer.delete("images", ["nobody"], ignore_missing=True)
    writer.add("images", made_up(["a"]), "skip")
    assert not changed()
    server.down = {"write_record"}
    with pytest.raises(EngineUnavailableError):
        writer.delete("images", ["a"])
    assert ids_of(server) == IDS and not changed()
    server.down = {"upsert"}  # the mark that failed is written by the next change
    with pytest.raises(EngineUnavailableError):
        writer.add("images", made_up(["x"]), "error")
    assert changed()
    server.down = set()
    server.calls.clear()
    writer.add("images", made_up(["x"]), "error")
    assert "write_record" not in server.calls


def test_what_is_not_unicode_is_in_no_index_and_refused_before_any_is_added(
    writer: EngineWriter, server: MemoryServer, made_up: MakeItems
) -> None:
    new = made_up(["x", "y"])
    broken = [new.items[0], new.items[1]._replace(metadata={"a": "\ud800"})]
    with pytest.raises(InputError, match=r"item 'y': .* Unicode"):
        writer.add("images", replace(new, items=broken), "error")
    assert ids_of(server) == IDS
    assert writer.known("images", ["a", "b", "\ud800"]) == {"a", "b"}
    report = writer.delete("images", ["a", "a", "\ud800"], ignore_missing=True)
    assert report == (1, ["a"], ["\ud800"])


def test_changes_go_to_the_generation_that_is_live(
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
    nothing = EngineWriter(tmp_path, MemoryEngine(MemoryServer()), "any")
    with pytest.raises(IndexNotReadyError, match="nothing was pushed to milvus"):
        nothing.known("images", ["a"])


def test_items_that_were_added_elsewhere_with_the_same_row_are_both_found(
    writer: EngineWriter, pushed: Path, server: MemoryServer, made_up: MakeItems
) -> None:
    new = made_up(["x", "y"])
    writer.add("images", new, "error")
    collection = server.collections[1, "images"]
    same = collection["x"].item.row
    collection["y"] = collection["y"]._replace(item=collection["y"].item._replace(row=same))
    with open_engine_index(pushed, MemoryEngine(server)) as index:
        for query in new.embeddings:
            found = index.collection("images")
            rows = found.order(FirstStageQuery(query, 6, 6)).rows
            assert len(set(rows.tolist())) == 6
            expected = sorted(collection.values(), key=lambda each: -float(each.embedding @ query))
            items = found.items.by_rows(rows.tolist())
            assert [item.id for item in items] == [each.item.id for each in expected]
            lengths = [each.tokens.count for each in expected if each.tokens is not None]
            assert found.lengths(rows).tolist() == lengths
