"""What is in an engine, and in the folder, after a push, and after one that was cut."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import closing
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from aladin_index.changes.writer import ChangesWriter
from aladin_index.encode.encoded import ItemBatch
from aladin_index.engines.engine_index import open_engine_index
from aladin_index.engines.milvus import EngineQuery, FoundItem, read_generation
from aladin_index.engines.push import (
    PushReport,
    PushSettings,
    entries_of,
    only_pusher,
    push_index,
    rollback_engine,
)
from aladin_index.engines.writer import EngineWriter
from aladin_index.format.layout import EngineLocation, location_of, write_location
from aladin_index.format.manifest import AnnEntry, RecallPoint
from aladin_index.generations.collection_writer import live_parts
from aladin_index.generations.reader import SearchIndex, open_index
from aladin_index.items.uploaded_photos import UploadedPhoto
from aladin_index.search.collection import FirstStageQuery
from aladin_index.upgrade.run import upgrade_index
from aladin_network.checkpoint import load_checkpoint
from aladin_network.checkpoint_files import read_model_id
from aladin_network.errors import (
    ConfigError,
    EngineError,
    EngineUnavailableError,
    IndexWriteError,
    InputError,
)
from aladin_network.types import TARGETS
from tests.index.engines.conftest import LOCATION
from tests.index.engines.memory_engine import MemoryEngine, MemoryServer
from tests.index.upgrade.conftest import SETTINGS

Push = Callable[..., PushReport]
MakeItems = Callable[..., ItemBatch]
SHARDED = replace(LOCATION, shards=2)


@pytest.fixture
def push_by(tmp_path: Path) -> Callable[..., PushReport]:
    """Return a function that pushes by a client of the test's: ``push_by(client, index)``."""

    def run(
        client: MemoryEngine, index: Path, location: EngineLocation = LOCATION, **settings: Any
    ) -> PushReport:
        return push_index(index, tmp_path / "remote", location, client, PushSettings(**settings))

    return run


@pytest.fixture
def writer(server: MemoryServer, published: Path, tmp_path: Path) -> EngineWriter:
    """Changes what is pushed of `published`."""
    model_id = read_model_id(published / "model")
    return EngineWriter(tmp_path / "remote", MemoryEngine(server), model_id)


def change_files(index: Path, *deleted: str, added: ItemBatch | None = None) -> None:
    with closing(ChangesWriter(index, read_model_id(index / "model"))) as writer:
        if added is not None:
            writer.add("images", added, "error")
        for item_id in deleted:
            writer.delete("images" if item_id.startswith("photo") else "texts", [item_id])


def assert_all_there(server: MemoryServer, generation: int, index: SearchIndex) -> None:
    """Compare what is in an engine with the files, item by item and byte by byte."""
    for target in TARGETS:
        stored = server.collections[generation, target]
        expected = [
            each for part in live_parts(index.collection(target), 7) for each in entries_of(part)
        ]
        assert sorted(stored) == sorted(each.item.id for each in expected)
        for each in expected:
            found = stored[each.item.id]
            assert found.item == each.item
            np.testing.assert_array_equal(found.embedding, each.embedding)
            for array, wanted in zip(found.tokens or (), each.tokens or (), strict=True):
                np.testing.assert_array_equal(array, wanted)


def test_all_that_is_live_is_in_the_engine_under_its_rows(
    push: Push, server: MemoryServer, published: Path, search_index: SearchIndex, tmp_path: Path
) -> None:
    report = push(published)
    exact = AnnEntry(
        factory="milvus flat",
        search_width=None,
        recall=1.0,
        recall_at=23,
        recall_queries=16,
        curve=[RecallPoint(search_width=None, oversample=1.0, recall=1.0)],
    )
    # Each collection is asked with items of the other.
    texts = replace(exact, recall_at=16, recall_queries=23)
    assert report == PushReport(
        generation=1,
        counts={"images": 23, "texts": 16},
        resumed={"images": 0, "texts": 0},
        first_stages={"images": exact, "texts": texts},
        dropped=[],
    )
    assert (server.live, server.opened) == (1, {(1, "images"), (1, "texts")})
    assert_all_there(server, 1, search_index)
    manifest = read_generation(MemoryEngine(server), 1).manifest
    expected = search_index.manifest
    assert (manifest.model, manifest.targets) == (expected.model, expected.targets)
    assert manifest.files == {}
    assert {target: each.ann for target, each in manifest.collections.items()} == (
        report.first_stages
    )
    assert location_of(tmp_path / "remote") == LOCATION
    assert load_checkpoint(tmp_path / "remote" / "model").model_id == expected.model.id


def test_items_that_were_added_and_removed_count(
    push: Push, server: MemoryServer, index_copy: Path, made_up: MakeItems, tmp_path: Path
) -> None:
    photo = UploadedPhoto(b"bytes of a photo")
    new = made_up(["x"])
    new = replace(new, items=[new.items[0]._replace(path=photo.path)], photos=[photo])
    with open_index(index_copy) as index:
        change_files(index_copy, "photo 3", "text 0", added=new)
        assert push(index_copy).counts == {"images": 23, "texts": 15}
        assert_all_there(server, 1, index)
    entry = read_generation(MemoryEngine(server), 1).manifest.images
    stored = server.collections[1, "images"].values()
    assert entry is not None
    assert entry.token_count == sum(each.tokens.count for each in stored if each.tokens)
    assert (tmp_path / "remote" / photo.path).read_bytes() == b"bytes of a photo"


@pytest.mark.parametrize("dtype", ["int8", "4bit"])
def test_writers_round_tokens_as_the_build_does(
    push: Push,
    server: MemoryServer,
    made_up: MakeItems,
    write_made_up: Callable[..., int],
    writer: EngineWriter,
    tmp_path: Path,
    dtype: str,
) -> None:
    ids = [f"item {number}" for number in range(60)]
    write_made_up(tmp_path / "files", dtype, images=made_up(ids), texts=made_up(ids, seed=1))
    push(tmp_path / "files")
    new = made_up(["x", "y"], seed=2)
    change_files(tmp_path / "files", added=new)
    writer.add("images", new, "error")
    with open_index(tmp_path / "files") as index:
        for part in live_parts(index.collection("images")):
            for each in entries_of(part):
                stored = server.collections[1, "images"][each.item.id].tokens
                for array, wanted in zip(stored or (), each.tokens or (), strict=True):
                    np.testing.assert_array_equal(array, wanted)


def test_generations_beyond_those_to_keep_and_rolled_back_ones_are_removed(
    push: Push, server: MemoryServer, published: Path
) -> None:
    assert [push(published).dropped for _ in range(4)] == [[], [], [1], [2]]
    server.records[5] = {"source.json": b"of a push that was cut"}
    report = push(published, keep=3)
    assert (report.generation, report.dropped) == (6, [5])
    assert sorted(server.records) == [3, 4, 6]
    assert rollback_engine(MemoryEngine(server)) == 4
    report = push(published, keep=2, ann_recall=0.5)
    assert (report.generation, report.dropped) == (7, [3, 6])
    assert rollback_engine(MemoryEngine(server)) == 4
    with pytest.raises(InputError, match="no generation before 4"):
        rollback_engine(MemoryEngine(server))
    assert push(published, keep=1).dropped == [4, 7]
    assert (server.live, sorted(server.records)) == (8, [8])


class CutEngine(MemoryEngine):
    """An engine that goes away after some batches."""

    def __init__(self, server: MemoryServer, batches: int) -> None:
        super().__init__(server)
        self.batches = batches

    def upsert(self, generation: int, target: Any, entries: Any) -> None:
        if self.batches == 0:
            # As where the answer is lost: some of it is there.
            super().upsert(generation, target, entries[:1])
            raise EngineUnavailableError(self.kind, "cut")
        self.batches -= 1
        super().upsert(generation, target, entries)


# 23 photos and 16 texts in batches of 2; every eighth batch is noted, and the end of a collection.
@pytest.mark.parametrize(("batches", "known"), [(7, 0), (8, 16), (19, 23)])
def test_a_push_that_was_cut_goes_on_where_it_was(
    push: Push,
    push_by: Push,
    server: MemoryServer,
    published: Path,
    search_index: SearchIndex,
    batches: int,
    known: int,
) -> None:
    push(published)
    elsewhere = replace(LOCATION, url="https://milvus.example")  # of the same engine
    with pytest.raises(EngineUnavailableError, match="cut"):
        push_by(CutEngine(server, batches), published, elsewhere, batch_size=2)
    assert server.live == 1
    server.calls.clear()
    report = push(published, batch_size=3)
    assert (report.generation, server.live) == (2, 2)
    assert report.resumed == {"images": known, "texts": 0}
    photo_batches = sum(min(start + 3, 23) > known for start in range(0, 23, 3))
    assert server.calls.count("upsert") == photo_batches + 6
    assert_all_there(server, 2, search_index)


def test_a_push_of_something_else_does_not_go_on(
    push: Push, push_by: Push, server: MemoryServer, index_copy: Path
) -> None:
    with pytest.raises(EngineUnavailableError):
        push_by(CutEngine(server, 9), index_copy, batch_size=2)
    report = push_by(MemoryEngine(server), index_copy, SHARDED)
    assert (report.generation, report.resumed["images"], report.dropped) == (2, 0, [1])
    change_files(index_copy, "photo 0")
    assert push(index_copy).counts["images"] == 22


def test_a_push_over_changed_items_needs_discard_changes(
    push: Push, push_by: Push, server: MemoryServer, published: Path, writer: EngineWriter
) -> None:
    push(published)

    class Changing(MemoryEngine):
        """Has an item deleted during the push."""

        def open_collection(self, generation: int, target: Any) -> None:
            super().open_collection(generation, target)
            if target == "images":
                writer.delete("images", ["photo 1"])

    for again in (partial(push_by, Changing(server), published, SHARDED), partial(push, published)):
        with pytest.raises(InputError, match=r"generation 1 .*--discard-changes"):
            again()
        assert server.live == 1
    assert "photo 1" not in server.collections[1, "images"]
    assert push(published, discard_changes=True).counts["images"] == 23
    assert server.live == 3


def test_a_generation_that_was_changed_is_not_filled_again(
    push: Push,
    server: MemoryServer,
    published: Path,
    search_index: SearchIndex,
    writer: EngineWriter,
) -> None:
    """After a rollback the newest generation is complete, and may have changes."""
    push(published)
    push(published)
    writer.delete("images", ["photo 3"])
    assert rollback_engine(MemoryEngine(server)) == 1
    report = push(published)
    assert (report.generation, report.resumed) == (3, {"images": 0, "texts": 0})
    assert report.dropped == [2]  # the live one does not come from it
    assert_all_there(server, 3, search_index)


def test_an_engine_that_lost_an_item_is_not_searched(
    push_by: Push, published: Path, server: MemoryServer
) -> None:
    class Losing(MemoryEngine):
        def open_collection(self, generation: int, target: Any) -> None:
            super().open_collection(generation, target)
            if target == "texts":
                del self.server.collections[generation, target]["text 5"]

    with pytest.raises(EngineError, match="generation 1: expected 16 texts, got 15"):
        push_by(Losing(server), published)
    assert server.live is None


def test_a_push_reports_the_recall_of_a_coarse_engine(
    push_by: Push, published: Path, server: MemoryServer
) -> None:
    class Coarse(MemoryEngine):
        """Of the nearest 23 and 16 it never finds the first."""

        def search(self, query: EngineQuery) -> list[FoundItem]:
            return super().search(query)[1:]

    stages = push_by(Coarse(server), published).first_stages
    found = {target: ann.recall for target, ann in stages.items()}
    assert found == {"images": pytest.approx(22 / 23), "texts": pytest.approx(15 / 16)}


def test_searches_look_as_far_as_is_needed_or_as_they_can(
    push: Push, server: MemoryServer, published: Path, tmp_path: Path
) -> None:
    # A search of this width sees the newest 4, 8 ... of 23 photos and 16 texts.
    server.widths = (4, 16)
    stage = push(published).first_stages["images"]
    assert (stage.search_width, stage.recall_wanted) == (16, 0.99)
    assert stage.recall == pytest.approx(16 / 23)
    server.widths = (4, 8, 16, 22, 32)
    for recall, widths in ((0.5, (16, 8)), (1.0, (32, 16))):
        stages = push(published, ann_recall=recall).first_stages
        assert (stages["images"].search_width, stages["texts"].search_width) == widths
        assert stages["images"].recall >= recall
    curve = [(point.search_width, point.recall) for point in stages["images"].curve]
    assert curve == [(width, pytest.approx(min(1, width / 23))) for width in server.widths]
    assert (stages["images"].factory, stages["images"].recall_wanted) == ("milvus graph", 1.0)

    # Searches of the generation look as far as was found to be needed.
    server.widths = (32,)
    with open_engine_index(tmp_path / "remote", MemoryEngine(server)) as index:
        query = np.eye(1, index.manifest.collections["images"].embedding_dim, dtype=np.float32)[0]
        assert len(index.collection("images").order(FirstStageQuery(query, 23, 23)).rows) == 23


def test_one_push_at_a_time_and_not_over_an_index_of_files(
    push: Push, index_copy: Path, server: MemoryServer, tmp_path: Path
) -> None:
    client, remote = MemoryEngine(server), tmp_path / "remote"
    with pytest.raises(ConfigError, match="got an index of files"):
        push_index(index_copy, index_copy, LOCATION, client, PushSettings())
    with only_pusher(remote), pytest.raises(IndexWriteError, match="is running"):
        push(index_copy)
    push(index_copy)
    with pytest.raises(InputError, match="expected an index of files"):
        push_index(remote, tmp_path / "other", LOCATION, client, PushSettings())
    for wrong in ({"batch_size": 0}, {"keep": 0}, {"ann_recall": 0}):
        with pytest.raises(ConfigError, match=r"expected .* 1, got 0"):
            PushSettings(**wrong)


# Calls that change an engine.
WRITES = {"write_record", "create_collection", "open_collection", "upsert", "make_live"}
WRITES.add("drop_generation")


def test_unless_live_pushes_only_what_changed_and_keeps_changes_in_the_engine(
    push: Push, index_copy: Path, server: MemoryServer, writer: EngineWriter, tmp_path: Path
) -> None:
    first = push(index_copy, unless_live=True)
    server.calls.clear()
    assert push(index_copy, unless_live=True) == first
    assert not WRITES & set(server.calls)
    writer.delete("images", ["photo 1"])
    assert push(index_copy, unless_live=True).generation == 1
    change_files(index_copy, "text 3")
    again = push(index_copy, unless_live=True, discard_changes=True)
    assert (again.generation, again.counts["texts"]) == (2, 15)
    write_location(tmp_path / "remote", replace(LOCATION, name="other"))
    assert push(index_copy, unless_live=True).generation == 3  # brought up to date
    assert push(index_copy).generation == 4  # asked for without


def test_a_push_of_an_upgraded_index_brings_its_model_and_a_rollback_the_old_one(
    push: Push, server: MemoryServer, index_copy: Path, new_checkpoint: Path, tmp_path: Path
) -> None:
    old_id = read_model_id(index_copy / "model")
    push(index_copy)
    upgrade_index(index_copy, new_checkpoint, SETTINGS)
    assert push(index_copy).generation == 2

    def live_model() -> str:
        return open_engine_index(tmp_path / "remote", MemoryEngine(server)).checkpoint.model_id

    assert live_model() == read_model_id(new_checkpoint)
    assert rollback_engine(MemoryEngine(server)) == 1
    assert live_model() == old_id
