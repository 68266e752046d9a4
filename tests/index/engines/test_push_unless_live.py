"""A push that is run at every start does its work once."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import closing
from dataclasses import replace
from pathlib import Path

from aladin_index.changes.writer import ChangesWriter
from aladin_index.engines.push import PushReport
from aladin_index.format.layout import write_location
from aladin_network.checkpoint_files import read_model_id
from tests.index.engines.conftest import LOCATION
from tests.index.engines.memory_engine import MemoryEngine, MemoryServer

# Calls that change an engine.
WRITES = {
    "write_record",
    "create_collection",
    "open_collection",
    "upsert",
    "make_live",
    "drop_generation",
}

Push = Callable[..., PushReport]


def test_what_is_live_already_is_not_pushed_again(
    push: Push, index_copy: Path, server: MemoryServer
) -> None:
    first = push(index_copy, unless_live=True)
    server.calls.clear()
    again = push(index_copy, unless_live=True)
    assert again == first
    assert not WRITES & set(server.calls)
    assert push(index_copy).generation == first.generation + 1  # asked for without


def test_what_is_live_keeps_what_was_added_to_it_there(
    push: Push, index_copy: Path, server: MemoryServer
) -> None:
    first = push(index_copy, unless_live=True)
    client = MemoryEngine(server)
    pieces = client.read_record(first.generation)
    assert pieces is not None
    client.write_record(first.generation, pieces | {"changed": b"1"})
    assert push(index_copy, unless_live=True).generation == first.generation


def test_an_index_that_changed_is_pushed(push: Push, index_copy: Path) -> None:
    first = push(index_copy, unless_live=True)
    with closing(ChangesWriter(index_copy, read_model_id(index_copy / "model"))) as writer:
        writer.delete("texts", ["text 3"])
    again = push(index_copy, unless_live=True)
    assert again.generation == first.generation + 1
    assert again.counts["texts"] == first.counts["texts"] - 1


def test_a_folder_that_stands_for_something_else_is_brought_up_to_date(
    push: Push, index_copy: Path, tmp_path: Path
) -> None:
    first = push(index_copy, unless_live=True)
    write_location(tmp_path / "remote", replace(LOCATION, name="other"))
    assert push(index_copy, unless_live=True).generation == first.generation + 1
