import itertools
import threading
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from aladin.errors import IndexCorruptError
from index.filters import parse_filter
from index.items import ItemStore, StoredItem, write_items


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


def test_items_come_back_as_they_were(tmp_path: Path) -> None:
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
    assert store.rows_by_id() == {"ü/1": 0, "2": 1}
    store.close()


def test_many_rows_keep_the_order_asked_for(store: ItemStore) -> None:
    rows = np.random.default_rng(1).permutation(700).tolist()
    assert [item.row for item in store.by_rows(rows)] == rows


def passes(metadata: dict[str, Any], spec: dict[str, Any]) -> bool:
    """The filter's rules, spelt out."""

    def kind(value: object) -> str | None:
        if isinstance(value, bool):
            return "bool"
        if isinstance(value, (int, float)):
            return "number"
        return "text" if isinstance(value, str) else None

    def equal(value: object, wanted: object) -> bool:
        return kind(value) == kind(wanted) and value == wanted

    for field, wanted in spec.items():
        value = metadata.get(field)
        values = value if isinstance(value, list) else [value]
        if not isinstance(wanted, dict):
            options = wanted if isinstance(wanted, list) else [wanted]
            if not any(equal(each, option) for each in values for option in options):
                return False
            continue
        for operator, bound in wanted.items():
            alike = [each for each in values if kind(each) == kind(bound)]
            if operator == "ne":
                passed = not any(each == bound for each in alike)
            elif operator == "gt":
                passed = any(each > bound for each in alike)
            elif operator == "gte":
                passed = any(each >= bound for each in alike)
            elif operator == "lt":
                passed = any(each < bound for each in alike)
            else:
                passed = any(each <= bound for each in alike)
            if not passed:
                return False
    return True


SPECS: list[dict[str, Any]] = [
    {"x": 2},
    {"x": True},
    {"x": "1"},
    {"x": [1, "b", False]},
    {"x": {"gt": 1}},
    {"x": {"gte": 2, "lte": 2.5}},
    {"x": {"lt": "c"}},
    {"x": {"ne": 2}},
    {"x": {"ne": "b", "gte": "a"}},
    {"x": {"gt": 2**69}},
    {'odd "name"': "b", "x": {"lte": 2}},
    {"unheard of": 1},
    {"unheard of": {"ne": 1}},
]


@pytest.mark.parametrize("spec", SPECS, ids=str)
def test_filters_agree_with_their_rules_spelt_out(store: ItemStore, spec: dict[str, Any]) -> None:
    everything = store.by_rows(range(700))
    expected = [item.row for item in everything if passes(item.metadata, spec)]
    assert store.select(parse_filter(spec)).rows.tolist() == expected


def test_threads_read_side_by_side(store: ItemStore) -> None:
    faults: list[object] = []

    def read(start: int) -> None:
        for row in itertools.islice(itertools.cycle(range(start, start + 50)), 200):
            if store.by_rows([row])[0].id != f"id {row}":
                faults.append(row)

    threads = [threading.Thread(target=read, args=(80 * number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert faults == []


def test_a_damaged_file_is_named(tmp_path: Path) -> None:
    path = tmp_path / "items.sqlite"
    path.write_bytes(b"not a database at all" * 100)
    with pytest.raises(IndexCorruptError, match=r"items\.sqlite: cannot be read"):
        ItemStore(path)
