import contextlib
import sqlite3
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import aladin_index.items.store
from aladin_index.items.columns import FieldColumns
from aladin_index.items.filters import parse_filter
from aladin_index.items.selection import Selection
from aladin_index.items.store import ItemStore
from aladin_index.items.tables import StoredItem, write_items
from aladin_network.errors import IndexCorruptError


def stored(row: int, **fields: Any) -> StoredItem:
    values: dict[str, Any] = dict.fromkeys(StoredItem._fields) | StoredItem._field_defaults
    return StoredItem(**(values | {"row": row, "id": f"id {row}", "metadata": {}} | fields))


@pytest.fixture
def store(tmp_path: Path, request: pytest.FixtureRequest) -> ItemStore:
    random = np.random.default_rng(0)
    values = [1, 2, 2.5, True, False, "1", "b", None, ["b", "c"], [2, "x"], {"deep": 1}, 2**70]
    items = [
        stored(
            row,
            metadata={
                field: values[random.integers(len(values))]
                for field in ("x", 'odd "name"')
                if random.random() < 0.8
            },
        )
        for row in range(700)
    ]
    write_items(tmp_path / "items.sqlite", items)
    opened = ItemStore(tmp_path / "items.sqlite")
    request.addfinalizer(opened.close)
    return opened


def test_items_come_back_as_they_were_unless_the_file_is_damaged(tmp_path: Path) -> None:
    photo = StoredItem(
        0, "ü/1", "a b.jpg", "/x/a b.jpg", None, None, 640, 480, {"a": [1, {"b": 2}]}
    )
    text = StoredItem(1, "2", None, None, "zwei Hunde 🐕", "ü/1", None, None, {})
    write_items(tmp_path / "it ems?.sqlite", [photo, text])
    store = ItemStore(tmp_path / "it ems?.sqlite")
    assert store.count == 2
    assert store.by_rows([1, 0]) == [text, photo]
    assert store.by_id("ü/1") == photo
    assert (photo.size_px, text.size_px) == ((640, 480), None)
    assert store.by_id("none") is None
    assert store.by_id("\ud800") is None
    assert dict(store.ids()) == {"ü/1": 0, "2": 1}
    store.close()
    (tmp_path / "items.sqlite").write_bytes(b"not a database at all" * 100)
    with pytest.raises(IndexCorruptError, match=r"items\.sqlite: cannot be read"):
        ItemStore(tmp_path / "items.sqlite")


def select(store: ItemStore, spec: dict[str, Any]) -> Selection:
    parsed = parse_filter(spec)
    assert parsed is not None
    return store.select(parsed)


def test_a_selection_is_kept_and_so_are_those_of_its_tests(
    store: ItemStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    either = select(store, {"or": [{"x": 2}, {"x": "b"}]})
    monkeypatch.setattr(FieldColumns, "passing", None)  # what would look further
    assert select(store, {"or": [{"x": 2}, {"x": "b"}]}) is either
    both = select(store, {"x": 2}).bitmap & select(store, {"x": "b"}).bitmap
    assert select(store, {"and": [{"x": 2}, {"x": "b"}]}).rows.tolist() == list(both)


def test_columns_beyond_the_memory_for_them_are_looked_up(
    store: ItemStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    specs = [{"x": "b"}, {'odd "name"': {"gte": "a"}}]
    expected = [select(store, spec).rows.tolist() for spec in specs]
    monkeypatch.setattr(aladin_index.items.store, "_COLUMNS_BYTES", 10)
    monkeypatch.setattr(FieldColumns, "passing", None)
    small = ItemStore(tmp_path / "items.sqlite")
    assert [select(small, spec).rows.tolist() for spec in specs] == expected
    small.close()


def test_threads_select_and_read_side_by_side(store: ItemStore, tmp_path: Path) -> None:
    specs = [{"x": {"gte": bound}} for bound in (0, 1, 2, 3, "a", "b")]
    expected = [select(store, spec).rows.tolist() for spec in specs]
    reopened = ItemStore(tmp_path / "items.sqlite")
    rows = np.random.default_rng(1).permutation(700).tolist()

    def use(_: int) -> bool:
        ordered = [item.row for item in reopened.by_rows(rows)] == rows
        return ordered and [select(reopened, spec).rows.tolist() for spec in specs] == expected

    with ThreadPoolExecutor(8) as pool:
        assert list(pool.map(use, range(8))) == [True] * 8
    reopened.close()


def test_the_connection_of_a_thread_is_closed_when_the_thread_ends(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_items(tmp_path / "items.sqlite", [stored(row) for row in range(3)])
    opened: list[sqlite3.Connection] = []
    connect = sqlite3.connect

    def counted(*args: Any, **options: Any) -> sqlite3.Connection:
        opened.append(connect(*args, **options))
        return opened[-1]

    def open_ones() -> int:
        count = 0
        for connection in opened:
            with contextlib.suppress(sqlite3.ProgrammingError):  # of a closed one
                connection.execute("SELECT 1")
                count += 1
        return count

    monkeypatch.setattr(sqlite3, "connect", counted)
    store = ItemStore(tmp_path / "items.sqlite")
    for _ in range(4):
        thread = threading.Thread(target=lambda: store.by_rows([1]))
        thread.start()
        thread.join()
    assert (len(opened), open_ones()) == (5, 1)  # of this thread
    assert store.by_rows([2])[0].id == "id 2"
    store.close()
    assert open_ones() == 0
