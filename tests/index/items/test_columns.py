import random
import sqlite3
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from aladin_index.items.column_tables import columns_bytes, read_columns
from aladin_index.items.columns import FieldColumns, GrowingColumns, build_columns
from aladin_index.items.filters import Test, parse_filter
from aladin_index.items.store import ItemStore
from aladin_index.items.tables import StoredItem, write_items
from aladin_network.errors import IndexCorruptError


def test_of(spec: dict[str, Any]) -> Test:
    parsed = parse_filter(spec)
    assert isinstance(parsed, Test)
    return parsed


test_of.__test__ = False


def write(path: Path, values: list[Any]) -> None:
    items = (
        StoredItem(row, str(row), None, None, None, None, None, None, {"a": value})
        for row, value in enumerate(values)
    )
    write_items(path, items)


def stored_columns(path: Path, end: int) -> FieldColumns | None:
    connection = sqlite3.connect(path)
    try:
        return read_columns(connection, "a", end) if columns_bytes(connection, "a") else None
    finally:
        connection.close()


@pytest.mark.parametrize("distinct", [7, 30_000])
def test_wide_and_narrow_ranges_of_many_rows(distinct: int) -> None:
    values = np.random.default_rng(0).integers(0, distinct, 20_000)
    columns = build_columns(enumerate(values.tolist()))
    for start in (0, distinct // 3, distinct - 1):
        for wide in (1, 2, distinct // 2, distinct):
            spec = {"a": {"gte": start, "lt": start + wide}}
            expected = np.flatnonzero((values >= start) & (values < start + wide))
            # The second time, the blocks are bitmaps already.
            for _ in range(2):
                assert list(columns.passing(test_of(spec))) == expected.tolist()
    some = values[:3].tolist()
    expected = np.flatnonzero(np.isin(values, some)).tolist()
    assert list(columns.passing(test_of({"a": some}))) == expected
    assert len(columns.passing(test_of({"a": {"exists": True}}))) == 20_000


def test_numbers_that_no_array_holds_exactly_stay_in_the_database(tmp_path: Path) -> None:
    for number, values in enumerate([[2**53 + 1, 0.5], [-0.5, 2**53 + 1], [-(2**60), 0.5]]):
        path = tmp_path / f"{number}.sqlite"
        write(path, [*values, values[0]])
        assert stored_columns(path, 3) is None
        store = ItemStore(path)
        parsed = parse_filter({"a": values[0]})
        assert parsed is not None
        assert store.select(parsed).rows.tolist() == [0, 2]
        store.close()


@pytest.mark.parametrize(
    "damage",
    [
        "rows = x'ffffff7f' || substr(rows, 5)",
        "rows = substr(rows, 5)",
        "rows = substr(rows, 2)",
        "counts = x'ffffffff' || substr(counts, 5)",
        'form = \'x\', "values" = "values"',
        '"values" = substr("values", 9)',
        "form = 't'",
        "kind = 9",
    ],
)
def test_damaged_columns_are_refused(tmp_path: Path, damage: str) -> None:
    write(tmp_path / "items.sqlite", [3, 1, 2, 2])
    with sqlite3.connect(tmp_path / "items.sqlite") as connection:
        connection.execute(f"UPDATE filter_columns SET {damage}")
    connection.close()
    store = ItemStore(tmp_path / "items.sqlite")
    with pytest.raises(IndexCorruptError):
        store.select(test_of({"a": 2}))
    store.close()


def test_added_items_are_read_a_few_times_each() -> None:
    values = [random.Random(0).randrange(50) for _ in range(300)]
    columns, read_rows = GrowingColumns(1000), 0

    def read(rows: range) -> Iterable[tuple[int, object]]:
        nonlocal read_rows
        read_rows += len(rows)
        return ((row, values[row - 1000]) for row in rows)

    for end in range(1001, 1301):
        found = columns.passing(test_of({"a": {"lt": 10}}), end, read)
        expected = [1000 + at for at, value in enumerate(values[: end - 1000]) if value < 10]
        assert list(found) == expected
    assert read_rows <= 300 * 9  # halved eight times, 300 is 1
    earlier = columns.passing(test_of({"a": {"lt": 10}}), 1100, read)
    assert list(earlier) == [row for row in expected if row < 1100]
