from __future__ import annotations

import os
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from dataclasses import replace
from pathlib import Path

import pytest

import aladin_index.generations.compact as compact_module
from aladin_index.changes.database import changes_database, changes_folder
from aladin_index.changes.writer import ChangesWriter
from aladin_index.encode.encoded import ItemBatch, PackedBatch
from aladin_index.format.disk import only_builder
from aladin_index.format.layout import generation_folder, live_generation, published_generations
from aladin_index.format.manifest import read_manifest
from aladin_index.generations.compact import compact_index
from aladin_index.generations.history import pending_changes
from aladin_index.generations.published import rollback_index
from aladin_index.generations.reader import open_index
from aladin_index.generations.verify import verify_index
from aladin_index.generations.writer import NewGeneration
from aladin_index.items.uploaded_photos import UploadedPhoto
from aladin_index.settings import BuildSettings
from aladin_network.checkpoint_files import read_model_id
from aladin_network.errors import IndexWriteError, InputError, UnknownItemError
from aladin_network.types import Progress
from tests.index.written import contents

MakeItems = Callable[..., ItemBatch]


def test_changes_are_folded_in_and_nothing_is_pending(
    root: Path, writer: ChangesWriter, made_up: MakeItems
) -> None:
    writer.add("images", made_up(["g", "b"], seed=1, n=[7, 8]), "replace")
    writer.delete("images", ["a", "f"])
    before = contents(root)
    report = compact_index(root)
    assert report == (2, {"images": 5, "texts": 2}, 2, 3, 0, [], [], {})
    assert contents(root) == before
    assert pending_changes(root) == {"images": (0, 0), "texts": (0, 0)}
    with open_index(root, encodes=False) as index:
        assert index.images.entry.count == 5
        assert dict(index.collection("images").items.ids()) == dict(
            zip("cdegb", range(5), strict=True)
        )
        assert index.collection("images").items.by_id("b").metadata == {"n": 8}
    verify_index(root)
    assert compact_index(root).generation == 2  # nothing to do


def test_changes_during_a_compaction_are_carried_over(
    root: Path, writer: ChangesWriter, made_up: MakeItems, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Between the copy and the last step: adds, a replacement, deletions of every kind of item."""
    writer.add("images", made_up(["g", "h"], n=[7, 8]), "error")
    writer.delete("images", ["a"])
    write = compact_module.write_generation

    def interrupted(root: Path, new: NewGeneration, progress: Progress | None) -> int:
        images = new.collections["images"]

        def parts() -> Iterator[PackedBatch]:
            yield from images.parts
            writer.add("images", made_up(["i", "j"], n=[9, 10]), "error")  # new
            writer.add("images", made_up(["b", "g", "i"], seed=5, n=[2, 3, 4]), "replace")
            writer.delete("images", ["c", "h", "j"])  # of the generation, folded in, new
            writer.add("texts", made_up(["u"]), "error")

        collections = {**new.collections, "images": replace(images, parts=parts())}
        return write(root, replace(new, collections=collections), progress)

    monkeypatch.setattr(compact_module, "write_generation", interrupted)
    report = compact_index(root)
    assert report.counts == {"images": 7, "texts": 2}
    # Rows i, j, b, g, i of images are new, and b, g, i, c, h, j are gone; of texts u is new.
    assert report.carried == 5 + 6 + 1
    assert contents(root).keys() == {"b", "d", "e", "f", "g", "i"}
    again = made_up(["b", "g", "i"], seed=5)
    assert [contents(root)[item_id][1] for item_id in "bgi"] == again.embeddings.tolist()
    assert contents(root, "texts").keys() == {"s", "t", "u"}
    assert pending_changes(root) == {"images": (3, 4), "texts": (1, 0)}
    writer.add("images", made_up(["k"]), "error")  # the rows go on
    monkeypatch.undo()
    before = contents(root)
    assert compact_index(root).generation == 3
    assert contents(root) == before


def test_nothing_is_lost_while_others_change_the_index(
    root: Path, writer: ChangesWriter, made_up: MakeItems
) -> None:
    """A thread adds and deletes all the while that the index is compacted four times."""
    done = threading.Event()
    expected = set("abcdef")
    faults: list[Exception] = []

    def change() -> None:
        number = 0
        try:
            while not done.is_set():
                writer.add("images", made_up([f"n{number}"], n=[number]), "error")
                expected.add(f"n{number}")
                if number % 3 == 2:
                    writer.delete("images", [f"n{number - 1}"])
                    expected.remove(f"n{number - 1}")
                number += 1
        except Exception as error:
            faults.append(error)

    thread = threading.Thread(target=change)
    thread.start()
    for _ in range(4):
        compact_index(root, keep=0)
    done.set()
    thread.join()
    assert faults == []
    assert contents(root).keys() == expected
    verify_index(root)


def test_generations_beyond_those_to_keep_are_removed_unless_somebody_searches_them(
    root: Path, writer: ChangesWriter, made_up: MakeItems
) -> None:
    def change_and_compact(item_id: str, keep: int) -> list[int]:
        writer.add("images", made_up([item_id]), "error")
        return compact_index(root, keep=keep).dropped

    assert change_and_compact("g", 1) == []
    assert change_and_compact("h", 1) == [1]
    assert change_and_compact("i", 2) == []
    rollback_index(root, 2)
    # Back at 2, generations 3 and 4 are undone for good by the next one.
    assert change_and_compact("k", 1) == [3, 4]
    assert published_generations(root) == [2, 5]
    assert change_and_compact("i", 0) == [2, 5]
    assert not changes_folder(root, 5).exists()
    writer.delete("images", ["a"])
    with open_index(root) as old:
        report = compact_index(root, keep=0)
        assert (report.dropped, report.in_use) == ([], [6])
        assert old.collection("images").count == 9  # "h" was added to 2
        assert {item.id for item in old.collection("images").items.by_rows([1, 5])} == {"b", "f"}
    report = compact_index(root, keep=0)
    assert (report.dropped, report.in_use, published_generations(root)) == ([6], [], [7])


def test_photos_that_no_generation_names_go(
    root: Path, writer: ChangesWriter, made_up: MakeItems
) -> None:
    photos = [UploadedPhoto(bytes([number]) * 9) for number in range(3)]

    def add(item_id: str, photo: UploadedPhoto) -> None:
        new = made_up([item_id])
        items = [new.items[0]._replace(path=photo.path)]
        added = replace(new, items=items, photos=[photo])
        writer.add("images", added, "error")

    def kept() -> list[bool]:
        return [(root / photo.path).exists() for photo in photos]

    for item_id, photo in zip("xyz", photos, strict=True):
        add(item_id, photo)
    (root / photos[0].path).with_name(".leftover.partial").write_bytes(b"of a killed process")
    writer.delete("images", ["y"])
    compact_index(root, keep=1)
    assert kept() == [True, True, True]  # generation 1 has them all, among its changes
    writer.delete("images", ["z"])
    compact_index(root, keep=1)
    assert kept() == [True, False, True]
    compact_index(root, keep=0)
    assert kept() == [True, False, False]
    assert [path.name for path in (root / "photos").rglob("*") if path.is_file()] == [
        Path(photos[0].path).name
    ]


def test_only_what_changed_something_makes_a_generation(
    root: Path, writer: ChangesWriter, made_up: MakeItems
) -> None:
    with pytest.raises(UnknownItemError):
        writer.delete("images", ["nobody"])
    assert changes_database(root, 1, "images").exists()
    assert compact_index(root).generation == 1
    writer.add("images", made_up(["g"]), "error")
    writer.delete("images", ["g"])  # what is left of it on the disk goes
    assert compact_index(root)[:4] == (2, {"images": 6, "texts": 2}, 0, 0)
    assert not changes_folder(root, 2).exists()


def test_a_compaction_that_cannot_be_is_refused_and_changes_nothing(
    root: Path,
    writer: ChangesWriter,
    made_up: MakeItems,
    write_made_up: Callable[..., int],
    tmp_path: Path,
) -> None:
    with pytest.raises(InputError, match="keep: expected at least 0, got -1"):
        compact_index(root, keep=-1)
    for change in (compact_index, rollback_index):
        with only_builder(root), pytest.raises(IndexWriteError, match="another build"):
            change(root)
    writer.delete("texts", ["s", "t"])
    with pytest.raises(InputError, match="texts: all items were removed"):
        compact_index(root)
    assert live_generation(root) == 1
    # A first stage that needs more items than are left.
    clustered, settings = tmp_path / "clustered", BuildSettings(ann="IVF4,Flat")
    write_made_up(clustered, images=made_up(list("abcde")), settings=settings)
    with closing(ChangesWriter(clustered, read_model_id(clustered / "model"))) as changing:
        changing.delete("images", ["a", "b", "c"])
        with pytest.raises(InputError, match=r"needs at least 4 vectors, there are 2.*--ann auto"):
            compact_index(clustered)
        assert live_generation(clustered) == 1
        assert pending_changes(clustered) == {"images": (0, 3)}
        changing.add("images", made_up(["f", "g"]), "error")
    assert compact_index(clustered).counts == {"images": 4}


def test_settings_and_tuning_stay(root: Path, writer: ChangesWriter) -> None:
    def kept(generation: int) -> list[object]:
        manifest = read_manifest(generation_folder(root, generation))
        of_collections = [
            (each.token_dtype, each.filter_fields, each.tuning)
            for each in manifest.collections.values()
        ]
        return [manifest.default_candidates, manifest.metric, manifest.model, *of_collections]

    writer.delete("images", ["a"])
    compact_index(root)
    assert kept(2) == kept(1)


@pytest.mark.parametrize("place", ["carry", "set_live", "drop"])
def test_a_kill_leaves_the_old_generation_or_the_new_one_whole(
    root: Path,
    writer: ChangesWriter,
    made_up: MakeItems,
    place: str,
) -> None:
    writer.add("images", made_up(["g"]), "error")
    writer.delete("images", ["a"])
    before = contents(root)
    child = os.fork()
    if child == 0:

        def die(*_: object) -> None:
            os.kill(os.getpid(), signal.SIGKILL)

        @contextmanager
        def die_inside(*_: object) -> Iterator[None]:
            die()
            yield

        import aladin_index.generations.writer as publish_module

        if place == "carry":
            compact_module.changes_lock = die_inside  # type: ignore[assignment]
        elif place == "set_live":
            publish_module.set_live_generation = die  # type: ignore[assignment]
        else:
            compact_module.drop_generations = die  # type: ignore[assignment]
        try:
            compact_index(root, keep=0)
        finally:
            os._exit(1)
    _, status = os.waitpid(child, 0)
    assert os.WTERMSIG(status) == signal.SIGKILL
    assert live_generation(root) == (2 if place == "drop" else 1)
    assert contents(root) == before
    writer.add("images", made_up(["h"]), "error")
    report = compact_index(root, keep=0)
    # What was not live when the process died is gone, and its number is free.
    assert report.generation == (3 if place == "drop" else 2)
    assert published_generations(root) == [report.generation]
    assert contents(root).keys() == before.keys() | {"h"}
    verify_index(root)


def test_changes_that_a_build_did_not_take_over_are_counted_when_they_go(
    root: Path, writer: ChangesWriter, made_up: MakeItems, write_made_up: Callable[..., int]
) -> None:
    writer.add("images", made_up(["x"]), "error")
    write_made_up(root, images=made_up(["a", "b", "c"]), texts=made_up(["s"]))
    writer.add("images", made_up(["y"]), "error")
    report = compact_index(root, keep=0)
    assert report.dropped == [1, 2]
    assert report.lost == {1: {"images": (1, 0), "texts": (0, 0)}}
