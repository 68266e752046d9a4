from __future__ import annotations

import multiprocessing
import os
import shutil
import sqlite3
import tempfile
import threading
from contextlib import closing
from dataclasses import replace
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from aladin_index.changes.database import changes_database
from aladin_index.changes.opening import open_to_read
from aladin_index.changes.writer import ChangesWriter
from aladin_index.encode.encoded import ItemBatch
from aladin_index.generations.reader import SearchIndex, open_index
from aladin_index.items.filters import Filter, parse_filter
from aladin_index.search.file_collection import FileCollection
from aladin_index.search.searcher import TwoStageSearcher
from aladin_network.checkpoint_files import Checkpoint
from aladin_network.errors import IndexCorruptError
from aladin_network.scoring.encoding import Encoding
from tests.index.searching import run_search
from tests.index.written import made_up


def test_a_snapshot_stays_as_it_was(
    root: Path, writer: ChangesWriter, checkpoint: Checkpoint
) -> None:
    with open_index(root, checkpoint=checkpoint) as index:
        before = index.collection("images")
        assert before.changes is None
        new = made_up(["d", "e"], n=[4, 5])
        writer.add("images", new, "error")
        one = index.collection("images")
        writer.add("images", made_up(["d", "f"], seed=1, n=[6, 7]), "replace")
        writer.delete("images", ["a"])
        two = index.collection("images")
        assert [collection.count for collection in (before, one, two)] == [3, 5, 5]
        assert dict(before.items.ids()) == {"a": 0, "b": 1, "c": 2}
        assert dict(one.items.ids()) == {"a": 0, "b": 1, "c": 2, "d": 3, "e": 4}
        assert dict(two.items.ids()) == {"b": 1, "c": 2, "e": 4, "d": 5, "f": 6}
        assert one.items.by_id("d").metadata == {"n": 4}
        assert two.items.by_id("d").metadata == {"n": 6}
        assert (one.items.by_id("f"), two.items.by_id("a")) == (None, None)
        np.testing.assert_array_equal(one.embedding(3), new.embeddings[0])
        np.testing.assert_array_equal(
            one.tokens(3), new.tokens[: new.lengths[0]].astype(np.float16)
        )
        # Row 3 is no longer live, and can still be read by a search that found it before.
        assert two.items.by_rows([3, 1])[0].metadata == {"n": 4}
        assert two.lengths(np.array([4, 0, 3])).tolist() == [
            new.lengths[1],
            before.lengths(np.array([0]))[0],
            new.lengths[0],
        ]

        def passing(collection: FileCollection, filter: Filter | None) -> list[int]:
            selection = replace(collection, filter=filter).selection
            return [] if selection is None else selection.rows.tolist()

        wanted = parse_filter({"n": {"gte": 3}})
        assert passing(before, wanted) == [2]
        assert passing(one, wanted) == [2, 3, 4]
        assert passing(two, wanted) == [2, 4, 5, 6]
        odd = parse_filter({"not": {"n": [2, 4, 6]}})
        assert passing(one, odd) == [0, 2, 4]
        assert passing(two, odd) == [2, 4, 6]


def test_nothing_is_read_again_where_nothing_is_new(
    root: Path, writer: ChangesWriter, checkpoint: Checkpoint
) -> None:
    with open_index(root, checkpoint=checkpoint) as index:
        writer.add("images", made_up(["d"]), "error")
        first = index.collection("images").changes
        assert index.collection("images").changes is first
        writer.delete("images", ["d"])
        second = index.collection("images").changes
        assert second is not first
        # What was in memory is there still: an addition does not move it.
        assert np.shares_memory(first.embeddings, second.embeddings)


@pytest.mark.parametrize(
    ("damage", "reason"),
    [
        (None, "cannot be read"),
        # Rows 0 to 2 are the generation's, and 3 was added.
        ("INSERT INTO removed (row) VALUES (4)", "expected removed rows from 0 to 3"),
    ],
)
def test_a_damaged_database_is_named(
    root: Path, writer: ChangesWriter, checkpoint: Checkpoint, damage: str | None, reason: str
) -> None:
    writer.add("images", made_up(["d"]), "error")
    writer.close()
    path = changes_database(root, 1, "images")
    if damage is None:
        path.write_bytes(b"no database at all" * 100)
    else:
        with closing(sqlite3.connect(path)) as database, database:
            database.execute(damage)
    with (
        open_index(root, checkpoint=checkpoint) as index,
        pytest.raises(IndexCorruptError, match=reason) as caught,
    ):
        index.collection("images")
    assert caught.value.file == path


def test_changes_are_noticed_without_a_trace_where_nothing_can_be_written(
    root: Path, writer: ChangesWriter, checkpoint: Checkpoint, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "access", lambda *_, **__: False)
    with pytest.raises(sqlite3.OperationalError, match="unable to open database file"):
        open_to_read(root / "images.sqlite")
    writer.add("images", made_up(["d"]), "error")
    writer.close()
    with open_index(root, checkpoint=checkpoint) as index:
        first = index.collection("images")
        assert index.collection("images").changes is first.changes
        assert [path.name for path in (root / "changes" / "000001").iterdir()] == ["images.sqlite"]
        for new in ("e", "f"):
            writer.add("images", made_up([new]), "error")
            writer.close()
        writer.delete("images", ["d"])
        second = index.collection("images")
        assert {item_id for item_id, _ in second.items.ids()} == set("abcef")
        assert second.items.by_rows([4, 5])[0].id == "e"
        assert first.items.by_rows([3])[0].id == "d"


def count_as_another_user(index: SearchIndex, pipe: Connection) -> None:
    """Count the photos each time when something is received; for a process of another user."""
    os.setgid(65534)
    os.setuid(65534)
    while pipe.recv():
        try:
            pipe.send({item_id for item_id, _ in index.collection("images").items.ids()})
        except IndexCorruptError as error:
            pipe.send(str(error))


@pytest.mark.skipif(os.getuid() != 0, reason="only root may become another user")
def test_another_user_who_may_not_write_sees_the_changes(
    root: Path, checkpoint: Checkpoint
) -> None:
    here, there = multiprocessing.Pipe()
    with tempfile.TemporaryDirectory() as open_to_all:
        own = Path(shutil.copytree(root, Path(open_to_all) / "index"))
        Path(open_to_all).chmod(0o755)

        def seen() -> object:
            here.send(True)
            assert here.poll(60)
            return here.recv()

        writers = [ChangesWriter(own, checkpoint.model_id) for _ in range(3)]
        writers[0].add("images", made_up(["d"]), "error")
        writers[0].close()
        with open_index(own, checkpoint=checkpoint) as index:
            process = multiprocessing.get_context("fork").Process(
                target=count_as_another_user, args=(index, there)
            )
            process.start()
            there.close()
        assert seen() == set("abcd")
        writers[1].add("images", made_up(["e"]), "error")
        assert seen() == set("abcde")  # the writer is at work
        writers[1].close()
        assert seen() == set("abcde")
        writers[2].add("images", made_up(["f"]), "error")
        writers[2].close()
        assert seen() == set("abcdef")
        here.send(False)
        process.join()
    assert process.exitcode == 0


def add_in_a_process(root: Path, model_id: str, new: list[ItemBatch]) -> None:
    """Add, one call after the other; for another process."""
    with closing(ChangesWriter(root, model_id)) as writer:
        for each in new:
            writer.add("images", each, "error")


def test_another_process_sees_each_call_whole_and_soon(root: Path, checkpoint: Checkpoint) -> None:
    """While a process adds 30 times 3 items, counts go up by threes here, and reach the end."""
    calls = [made_up([f"{n}-{part}" for part in range(3)]) for n in range(30)]
    with open_index(root, checkpoint=checkpoint) as index:
        process = multiprocessing.get_context("fork").Process(
            target=add_in_a_process, args=(root, checkpoint.model_id, calls)
        )
        process.start()
        counts = [3]
        while process.is_alive():
            counts.append(index.collection("images").count)
        process.join()
        counts.append(index.collection("images").count)
    assert process.exitcode == 0
    assert counts == sorted(counts)
    assert set(counts) <= {3 + 3 * n for n in range(31)}
    assert counts[-1] == 93


def test_threads_search_while_others_add_and_remove(
    root: Path, writer: ChangesWriter, checkpoint: Checkpoint
) -> None:
    """Pairs of items come and go together; every search finds both of a pair or neither."""
    query = Encoding(
        np.full((1, 16), 16**-0.5, dtype=np.float32),
        np.full((1, 2, 8), 8**-0.5, dtype=np.float32),
        np.ones((1, 2), dtype=np.bool_),
    )
    faults: list[Any] = []
    done = threading.Event()
    with open_index(root, checkpoint=checkpoint) as index:
        searcher = TwoStageSearcher(index)

        def search(filter: dict[str, Any] | None) -> None:
            try:
                while not done.is_set():
                    hits = run_search(searcher, query, "text", "images", k=99, filter=filter).hits
                    ids = {hit.id for hit in hits}
                    halves = {item_id[1:] for item_id in ids if item_id[0] == "x"} ^ {
                        item_id[1:] for item_id in ids if item_id[0] == "y"
                    }
                    if halves or len(ids) != len(hits):
                        faults.append(ids)
            except Exception as error:
                faults.append(error)

        threads = [
            threading.Thread(target=search, args=(filter,))
            for filter in (None, {"n": {"gte": 0}}, None)
        ]
        for thread in threads:
            thread.start()
        for number in range(40):
            new = made_up([f"x{number % 7}", f"y{number % 7}"], seed=number, n=[0, 0])
            writer.add("images", new, "replace")
            if number % 3 == 0:
                writer.delete("images", [f"y{number % 7}", f"x{number % 7}"])
        done.set()
        for thread in threads:
            thread.join()
    assert faults == []


def test_a_database_that_was_replaced_is_read_from_the_start(
    root: Path, writer: ChangesWriter, checkpoint: Checkpoint, tmp_path: Path
) -> None:
    with open_index(root, checkpoint=checkpoint) as index:
        writer.add("images", made_up(["d"]), "error")
        backup = Path(shutil.copytree(root / "changes", tmp_path / "backup"))
        writer.add("images", made_up(["e", "f"]), "error")
        writer.delete("images", ["a"])
        before = index.collection("images")
        assert dict(before.items.ids()) == {"b": 1, "c": 2, "d": 3, "e": 4, "f": 5}
        for kept in (True, False):
            (root / "changes").rename(tmp_path / f"moved {kept}")
            if kept:
                shutil.copytree(backup, root / "changes")
            known = {"a": 0, "b": 1, "c": 2} | ({"d": 3} if kept else {})
            assert dict(index.collection("images").items.ids()) == known
            writer.add("images", made_up([f"g {kept}"]), "error")
            assert f"g {kept}" in dict(index.collection("images").items.ids())
        # What began before goes on with what it began with.
        assert dict(before.items.ids()) == {"b": 1, "c": 2, "d": 3, "e": 4, "f": 5}
        assert before.count == 5
