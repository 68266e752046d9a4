"""What is in an engine, and in the folder, after a push, and after one that was cut."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from aladin_index.changes.encoded import ItemBatch
from aladin_index.changes.writer import ChangesWriter
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
from aladin_index.format.layout import location_of, write_location
from aladin_index.format.manifest import AnnEntry, Manifest, RecallPoint
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


def model_id(manifest: Manifest) -> str:
    return manifest.model.id


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
    assert report == PushReport(
        generation=1,
        counts={"images": 23, "texts": 16},
        resumed={"images": 0, "texts": 0},
        # Each collection is asked with items of the other.
        first_stages={
            "images": exact,
            "texts": replace(exact, recall_at=16, recall_queries=23),
        },
        dropped=[],
    )
    assert server.live == 1
    assert server.opened == {(1, "images"), (1, "texts")}
    assert_all_there(server, 1, search_index)

    manifest = read_generation(MemoryEngine(server), 1).manifest
    expected = search_index.manifest
    assert (manifest.model, manifest.targets) == (expected.model, expected.targets)
    assert manifest.files == {}
    assert {
        target: collection.ann for target, collection in manifest.collections.items()
    } == report.first_stages
    assert location_of(tmp_path / "remote") == LOCATION
    assert load_checkpoint(tmp_path / "remote" / "model").model_id == expected.model.id


def test_items_that_were_added_and_removed_count(
    push: Push, server: MemoryServer, index_copy: Path, made_up: MakeItems, tmp_path: Path
) -> None:
    photo = UploadedPhoto(b"bytes of a photo")
    new = made_up(["x", "y"])
    uploaded = replace(
        new, items=[new.items[0]._replace(path=photo.path), new.items[1]], photos=[photo]
    )
    with open_index(index_copy) as index:
        with closing(ChangesWriter(index_copy, model_id(index.manifest))) as writer:
            writer.add("images", uploaded, "error")
            writer.delete("images", ["photo 3", "y"])
            writer.delete("texts", ["text 0"])
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
    tmp_path: Path,
    search_index: SearchIndex,
    dtype: str,
) -> None:
    ids = [f"item {number}" for number in range(60)]
    write_made_up(tmp_path / "files", dtype, images=made_up(ids), texts=made_up(ids, seed=1))
    push(tmp_path / "files")
    model = model_id(search_index.manifest)
    new = made_up(["x", "y"], seed=2)
    with closing(ChangesWriter(tmp_path / "files", model)) as here:
        here.add("images", new, "error")
    EngineWriter(tmp_path / "remote", MemoryEngine(server), model).add("images", new, "error")
    with open_index(tmp_path / "files") as index:
        for part in live_parts(index.collection("images")):
            for each in entries_of(part):
                stored = server.collections[1, "images"][each.item.id].tokens
                for array, wanted in zip(stored or (), each.tokens or (), strict=True):
                    np.testing.assert_array_equal(array, wanted)


def test_a_rolled_back_push_is_neither_restored_nor_kept(
    push: Push, server: MemoryServer, published: Path
) -> None:
    assert [push(published).generation for _ in range(2)] == [1, 2]
    client = MemoryEngine(server)
    assert rollback_engine(client) == 1
    report = push(published, ann_recall=0.5)
    assert (report.generation, report.dropped) == (3, [2])
    assert rollback_engine(client) == 1
    with pytest.raises(InputError, match="no generation before 1"):
        rollback_engine(client)


def test_generations_beyond_those_to_keep_are_removed(
    push: Push, server: MemoryServer, published: Path
) -> None:
    assert [push(published).dropped for _ in range(4)] == [[], [], [1], [2]]
    server.records[5] = {"source.json": b"of a push that was cut"}
    report = push(published, keep=3)
    assert (report.generation, report.dropped) == (6, [5])
    assert sorted(server.records) == [3, 4, 6]
    assert push(published, keep=1).dropped == [3, 4, 6]
    assert (server.live, sorted(server.records)) == (7, [7])


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
    server: MemoryServer,
    published: Path,
    search_index: SearchIndex,
    tmp_path: Path,
    batches: int,
    known: int,
) -> None:
    push(published)
    client, settings = CutEngine(server, batches), PushSettings(batch_size=2)
    with pytest.raises(EngineUnavailableError, match="cut"):
        push_index(published, tmp_path / "remote", LOCATION, client, settings)
    assert server.live == 1
    server.calls.clear()
    report = push(published, batch_size=3)
    assert (report.generation, server.live) == (2, 2)
    assert report.resumed == {"images": known, "texts": 0}
    photo_batches = sum(min(start + 3, 23) > known for start in range(0, 23, 3))
    assert server.calls.count("upsert") == photo_batches + 6
    assert_all_there(server, 2, search_index)


def test_a_push_of_something_else_does_not_go_on(
    push: Push, server: MemoryServer, index_copy: Path, tmp_path: Path
) -> None:
    client, settings = CutEngine(server, 3), PushSettings(batch_size=2)
    with pytest.raises(EngineUnavailableError):
        push_index(index_copy, tmp_path / "remote", LOCATION, client, settings)
    sharded = replace(LOCATION, shards=2)
    client = MemoryEngine(server)
    report = push_index(index_copy, tmp_path / "remote", sharded, client, settings)
    assert (report.generation, report.resumed["images"]) == (2, 0)
    assert report.dropped == [1]
    with (
        open_index(index_copy) as index,
        closing(ChangesWriter(index_copy, model_id(index.manifest))) as writer,
    ):
        writer.delete("images", ["photo 0"])
    assert push(index_copy).counts["images"] == 22


def test_another_address_of_the_same_engine_goes_on(
    push: Push, server: MemoryServer, published: Path, tmp_path: Path
) -> None:
    elsewhere = replace(LOCATION, url="https://milvus.example")
    client, settings = CutEngine(server, 9), PushSettings(batch_size=2)
    with pytest.raises(EngineUnavailableError):
        push_index(published, tmp_path / "remote", elsewhere, client, settings)
    assert push(published).resumed["images"] == 16


def test_a_push_over_changed_items_needs_discard_changes(
    push: Push, server: MemoryServer, published: Path, search_index: SearchIndex, tmp_path: Path
) -> None:
    push(published)
    model = model_id(search_index.manifest)
    writer = EngineWriter(tmp_path / "remote", MemoryEngine(server), model)
    writer.delete("images", ["photo 1"])
    with pytest.raises(InputError, match=r"generation 1 .*--discard-changes"):
        push(published)
    assert (server.live, sorted(server.records)) == (1, [1])
    assert push(published, discard_changes=True).counts["images"] == 23


def test_changes_during_a_push_need_discard_changes(
    push: Push, server: MemoryServer, published: Path, search_index: SearchIndex, tmp_path: Path
) -> None:
    push(published)
    root, model = tmp_path / "remote", model_id(search_index.manifest)

    class Changing(MemoryEngine):
        def open_collection(self, generation: int, target: Any) -> None:
            super().open_collection(generation, target)
            if target == "images":
                EngineWriter(root, MemoryEngine(server), model).delete("images", ["photo 1"])

    sharded = replace(LOCATION, shards=2)
    with pytest.raises(InputError, match=r"generation 1 .*--discard-changes"):
        push_index(published, root, sharded, Changing(server), PushSettings())
    assert server.live == 1
    assert "photo 1" not in server.collections[1, "images"]
    settings = PushSettings(discard_changes=True)
    assert push_index(published, root, sharded, MemoryEngine(server), settings).generation == 2
    assert server.live == 2


def test_an_engine_that_lost_an_item_is_not_searched(
    published: Path, server: MemoryServer, tmp_path: Path
) -> None:
    class Losing(MemoryEngine):
        def open_collection(self, generation: int, target: Any) -> None:
            super().open_collection(generation, target)
            if target == "texts":
                del self.server.collections[generation, target]["text 5"]

    with pytest.raises(EngineError, match="generation 1: expected 16 texts, got 15"):
        push_index(published, tmp_path / "remote", LOCATION, Losing(server), PushSettings())
    assert server.live is None


def test_a_push_reports_the_recall_of_a_coarse_engine(
    published: Path, server: MemoryServer, tmp_path: Path
) -> None:
    class Coarse(MemoryEngine):
        def search(self, query: EngineQuery) -> list[FoundItem]:
            return super().search(query)[1:]

    report = push_index(published, tmp_path / "remote", LOCATION, Coarse(server), PushSettings())
    # Of the nearest 23 and 16 it never finds the first.
    found = {target: ann.recall for target, ann in report.first_stages.items()}
    assert found == {"images": pytest.approx(22 / 23), "texts": pytest.approx(15 / 16)}


def test_searches_look_as_far_as_is_needed(
    push: Push, server: MemoryServer, published: Path, tmp_path: Path
) -> None:
    # A search of this width sees the newest 4, 8 ... of 23 photos and 16 texts.
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
    client = MemoryEngine(server)
    with open_engine_index(tmp_path / "remote", client) as index:
        query = np.eye(1, index.manifest.collections["images"].embedding_dim, dtype=np.float32)[0]
        assert len(index.collection("images").order(FirstStageQuery(query, 23, 23)).rows) == 23


def test_a_push_reports_the_best_width_if_none_finds_enough(
    push: Push, server: MemoryServer, published: Path
) -> None:
    server.widths = (4, 16)
    stage = push(published).first_stages["images"]
    assert (stage.search_width, stage.recall_wanted) == (16, 0.99)
    assert stage.recall == pytest.approx(16 / 23)


def test_one_push_at_a_time_and_not_over_an_index_of_files(
    push: Push, index_copy: Path, server: MemoryServer, tmp_path: Path
) -> None:
    with pytest.raises(ConfigError, match="got an index of files"):
        push_index(index_copy, index_copy, LOCATION, MemoryEngine(server), PushSettings())
    with only_pusher(tmp_path / "remote"), pytest.raises(IndexWriteError, match="is running"):
        push(index_copy)
    push(index_copy)
    with pytest.raises(InputError, match="expected an index of files"):
        push_index(
            tmp_path / "remote", tmp_path / "other", LOCATION, MemoryEngine(server), PushSettings()
        )


@pytest.mark.parametrize("settings", [{"batch_size": 0}, {"keep": 0}, {"ann_recall": 0}])
def test_impossible_settings_are_refused(settings: dict[str, Any]) -> None:
    with pytest.raises(ConfigError, match=r"expected .* 1, got 0"):
        PushSettings(**settings)


def test_a_generation_that_was_changed_is_not_filled_again(
    push: Push, server: MemoryServer, published: Path, search_index: SearchIndex, tmp_path: Path
) -> None:
    """After a rollback the newest generation is complete, and may have changes."""
    push(published)
    push(published)
    model = model_id(search_index.manifest)
    writer = EngineWriter(tmp_path / "remote", MemoryEngine(server), model)
    writer.delete("images", ["photo 3"])
    assert rollback_engine(MemoryEngine(server)) == 1
    report = push(published)
    assert (report.generation, report.resumed) == (3, {"images": 0, "texts": 0})
    assert report.dropped == [2]  # the live one does not come from it
    assert_all_there(server, 3, search_index)


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


def test_unless_live_does_not_push_the_live_index_again(
    push: Push, index_copy: Path, server: MemoryServer
) -> None:
    first = push(index_copy, unless_live=True)
    server.calls.clear()
    again = push(index_copy, unless_live=True)
    assert again == first
    assert not WRITES & set(server.calls)
    assert push(index_copy).generation == first.generation + 1  # asked for without


def test_unless_live_keeps_changes_made_in_the_engine(
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


def test_a_push_of_an_upgraded_index_brings_its_model_and_a_rollback_the_old_one(
    push: Callable[..., PushReport],
    server: MemoryServer,
    index_copy: Path,
    new_checkpoint: Path,
    tmp_path: Path,
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
