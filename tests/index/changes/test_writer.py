from __future__ import annotations

import fcntl
import shutil
import sqlite3
import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path

import numpy as np
import pytest

from aladin_index.changes import writable
from aladin_index.changes.database import changes_database
from aladin_index.changes.writer import ChangesWriter
from aladin_index.format.disk import changes_lock
from aladin_index.format.layout import CHANGES_LOCK, generation_folder
from aladin_index.format.manifest import read_manifest
from aladin_index.generations.history import pending_changes
from aladin_network.errors import DuplicateItemError, IndexWriteError, InputError
from tests.index.written import made_up


def lines(root: Path) -> tuple[list[tuple[int, str]], list[int]]:
    """Return the rows and ids that were added, and the rows that were removed."""
    with closing(sqlite3.connect(changes_database(root, 1, "images"))) as connection:
        added = connection.execute("SELECT row, id FROM items ORDER BY row").fetchall()
        encoded = connection.execute("SELECT row FROM encodings ORDER BY row").fetchall()
        removed = connection.execute("SELECT row FROM removed ORDER BY sequence").fetchall()
    assert [row for (row,) in encoded] == [row for row, _ in added]
    return added, [row for (row,) in removed]


def test_rows_count_on_and_never_come_again(root: Path, writer: ChangesWriter) -> None:
    assert writer.add("images", made_up(["d", "e"]), "error").ids["added"] == ["d", "e"]
    assert writer.delete("images", ["e", "a"]) == (1, ["e", "a"], [])
    report = writer.add("images", made_up(["e", "b"], seed=1), "replace")
    assert report == (1, {"added": ["e"], "replaced": ["b"], "kept": []})
    assert lines(root) == ([(3, "d"), (4, "e"), (5, "e"), (6, "b")], [4, 0, 1])
    # b of the generation, a of the generation; e was added, removed and added.
    assert pending_changes(root) == {"images": (3, 2), "texts": (0, 0)}


def test_each_row_has_the_tokens_of_its_item(root: Path, writer: ChangesWriter) -> None:
    new = made_up(["d", "a", "e", "f"])
    assert len(set(new.lengths.tolist())) > 1
    writer.add("images", new, "skip")  # a is there already
    with closing(sqlite3.connect(changes_database(root, 1, "images"))) as connection:
        stored = connection.execute(
            'SELECT tokens, length("values") FROM encodings ORDER BY row'
        ).fetchall()
    counts = new.lengths[[0, 2, 3]].tolist()
    assert [count for count, _ in stored] == counts
    bytes_a_token = stored[0][1] // counts[0]
    assert [size for _, size in stored] == [count * bytes_a_token for count in counts]


def test_ids_that_come_twice_in_a_call_are_taken_in_turn(root: Path, writer: ChangesWriter) -> None:
    twice = made_up(["d", "a", "d"])
    with pytest.raises(DuplicateItemError, match="'a'"):
        writer.add("images", twice, "error")
    skipping = writer.add("images", twice, "skip")
    assert skipping.ids == {"added": ["d"], "replaced": [], "kept": ["a", "d"]}
    replacing = writer.add("images", twice, "replace")
    assert replacing.ids["replaced"] == ["d", "a", "d"]
    assert lines(root) == ([(3, "d"), (4, "d"), (5, "a"), (6, "d")], [3, 0, 4])
    assert writer.delete("images", ["d", "d"]).deleted == ["d"]
    assert writer.known("images", ["a", "b", "d", "\ud800"]) == {"a", "b"}


def test_a_disk_that_fails_in_the_middle_leaves_nothing(
    root: Path, writer: ChangesWriter, monkeypatch: pytest.MonkeyPatch
) -> None:
    inserted = writable._insert_encoding
    calls: list[int] = []

    def full(connection: sqlite3.Connection, row: int, *rest: object) -> None:
        calls.append(row)
        if len(calls) == 2:
            raise sqlite3.OperationalError("database or disk is full")
        inserted(connection, row, *rest)  # type: ignore[arg-type]

    monkeypatch.setattr(writable, "_insert_encoding", full)
    with pytest.raises(IndexWriteError, match=r"disk is full; nothing of this call was applied"):
        writer.add("images", made_up(["d", "e", "f"]), "error")
    assert lines(root) == ([], [])
    assert writer.add("images", made_up(["d"]), "error").ids["added"] == ["d"]
    writer.close()
    shutil.rmtree(root / "changes")
    (root / "changes").write_text("a file in the way")
    with pytest.raises(IndexWriteError, match="nothing of this call was applied"):
        writer.add("images", made_up(["d"]), "error")


def replace_folder(root: Path, backup: Path) -> None:
    """Put a copy of a backup in the place of an index, as one who restores it does."""
    broken = root.with_name("broken")
    shutil.rmtree(broken, ignore_errors=True)
    copy = Path(shutil.copytree(backup, root.with_name("copy")))
    root.rename(broken)
    copy.rename(root)


def test_changes_go_to_the_folder_that_is_there_now(
    root: Path, writer: ChangesWriter, tmp_path: Path
) -> None:
    writer.add("images", made_up(["d"]), "error")
    backup = Path(shutil.copytree(root, tmp_path / "backup"))
    for item_id in ("e", "f"):  # also a second time
        replace_folder(root, backup)
        assert writer.known("images", [item_id]) == set()
        writer.add("images", made_up([item_id]), "error")
        assert lines(root)[0] == [(3, "d"), (4, item_id)]
    assert lines(root.with_name("broken"))[0] == [(3, "d"), (4, "e")]
    # A folder in which nothing was changed yet.
    shutil.rmtree(backup / "changes")
    replace_folder(root, backup)
    assert writer.known("images", ["a", "d", "f"]) == {"a"}
    assert writer.delete("images", ["a"]).deleted == ["a"]
    assert lines(root) == ([], [0])


def test_a_database_that_was_replaced_alone_is_opened_anew(
    root: Path, writer: ChangesWriter, tmp_path: Path
) -> None:
    writer.add("images", made_up(["d"]), "error")
    backup = Path(shutil.copytree(root / "changes", tmp_path / "backup"))
    writer.add("images", made_up(["e"]), "error")
    (root / "changes").rename(tmp_path / "moved")
    backup.rename(root / "changes")
    assert writer.known("images", ["d", "e"]) == {"d"}
    writer.add("images", made_up(["f"]), "error")
    assert lines(root)[0] == [(3, "d"), (4, "f")]


@pytest.mark.parametrize("changes_before", [0, 1])
def test_a_folder_that_is_replaced_in_the_middle_of_a_call_fails_it(
    root: Path,
    writer: ChangesWriter,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    changes_before: int,
) -> None:
    for _ in range(changes_before):
        writer.add("images", made_up(["d"]), "error")
    backup = Path(shutil.copytree(root, tmp_path / "backup"))
    inserted = writable._insert_encoding

    def replace_and_insert(*arguments: object) -> None:
        replace_folder(root, backup)
        inserted(*arguments)  # type: ignore[arg-type]

    monkeypatch.setattr(writable, "_insert_encoding", replace_and_insert)
    with pytest.raises(
        IndexWriteError, match="was replaced during this call; nothing was written to"
    ):
        writer.add("images", made_up(["e"]), "error")
    monkeypatch.setattr(writable, "_insert_encoding", inserted)
    assert writer.known("images", ["e"]) == set()
    assert writer.add("images", made_up(["e"]), "error").ids["added"] == ["e"]
    assert [item_id for _, item_id in lines(root)[0]][-1] == "e"


def test_waiting_for_the_lock_ends_with_the_lock_of_the_present_folder(
    root: Path, tmp_path: Path
) -> None:
    got: list[bool] = []

    def wait() -> None:
        with changes_lock(root), (root / CHANGES_LOCK).open("rb") as file:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                got.append(False)
            except BlockingIOError:
                got.append(True)

    with changes_lock(root):
        backup = Path(shutil.copytree(root, tmp_path / "backup"))
        waiting = threading.Thread(target=wait)
        waiting.start()
        waiting.join(0.2)
        assert waiting.is_alive()
        replace_folder(root, backup)
    waiting.join(20)
    assert got == [True]


def test_threads_and_writers_take_turns(root: Path) -> None:
    """Of 4 writers that add the same 20 ids, each id goes to one; no row comes twice."""
    model_id = read_manifest(generation_folder(root, 1)).model.id
    writers = [ChangesWriter(root, model_id) for _ in range(2)]
    added: list[str] = []
    refused: list[str] = []

    def work(seed: int) -> None:
        writer = writers[seed % 2]
        for number in np.random.default_rng(seed).permutation(20).tolist():
            try:
                added.extend(writer.add("images", made_up([f"i{number}"]), "error").ids["added"])
            except DuplicateItemError as error:
                refused.append(error.item_id)

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(work, range(4)))
    for writer in writers:
        writer.close()
    assert sorted(added) == sorted(f"i{n}" for n in range(20))
    assert len(refused) == 60
    assert [row for row, _ in lines(root)[0]] == list(range(3, 23))


def test_more_distinct_fields_than_there_is_room_for_are_refused(
    root: Path, writer: ChangesWriter, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(writable, "MAX_FILTER_FIELDS", 4)  # the generation has n
    writer.add("images", made_up(["d"], n=[1], a=[2]), "error")
    writer.add("images", made_up(["e"], n=[1], b=[2], c=[3]), "error")
    with pytest.raises(InputError, match=r"at most 4 distinct fields in the index, got 5 with"):
        writer.add("images", made_up(["f", "g"], n=[1, 1], d=[2, 2]), "error")
    assert not writer.known("images", ["f", "g"])
    # What is known already may come again.
    writer.add("images", made_up(["f"], n=[1], a=[2], b=[2], c=[2]), "error")
    assert lines(root)[0] == [(3, "d"), (4, "e"), (5, "f")]
    # An index that has more takes items of known fields.
    monkeypatch.setattr(writable, "MAX_FILTER_FIELDS", 2)
    writer.add("images", made_up(["g"], a=[1], n=[2]), "error")
    with pytest.raises(InputError, match="at most 2 distinct fields"):
        writer.add("images", made_up(["h"], new=[1]), "error")
    assert writer.known("images", ["g", "h"]) == {"g"}
    assert writer.add("images", made_up(["i"]), "error").ids["added"] == ["i"]
