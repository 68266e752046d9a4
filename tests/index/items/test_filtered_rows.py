import sqlite3
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any

import numpy as np
from hypothesis import example, given, settings
from hypothesis import strategies as st
from pyroaring import BitMap

from aladin_index.items.column_tables import columns_bytes, read_columns, store_columns
from aladin_index.items.columns import FieldColumns, GrowingColumns, combine
from aladin_index.items.filters import Filter, Test, leaves, parse_filter
from aladin_index.items.look_ups import look_up, read_values
from aladin_index.items.selection import bitmap_of
from aladin_index.items.tables import StoredItem, create_tables, insert_items

FIELDS = ["x", "y", 'odd "name"', "", "and", "or", "not", "$gt", "it's; DROP TABLE items --"]
TEXTS = [
    "",
    "a",
    "b",
    "ba",
    "1",
    "é",
    "e\u0301",
    "🐕",
    "a\x00b",
    "a\x00",
    "' OR 1=1 --",
    '{"a": 1}',
]
NUMBERS = [0, 1, -1, 2, 2.5, -0.0, 0.1, 1e300, 5e-324, 2**53, 2**53 + 1, 2.0**53]
NUMBERS += [2**63 - 1, 2**63, -(2**63), 2**70, float(2**70), 0.30000000000000004]

numbers = st.sampled_from(NUMBERS) | st.integers() | st.floats(allow_nan=False)
texts = st.sampled_from(TEXTS) | st.text(max_size=5)
operand = (
    st.booleans()
    | texts
    | st.sampled_from(NUMBERS)
    | st.integers()
    | st.floats(allow_nan=False, allow_infinity=False)
)
bound = texts | st.sampled_from(NUMBERS) | st.floats(allow_nan=False, allow_infinity=False)
value = st.booleans() | texts | numbers | st.none() | st.just(10**400) | st.just({"x": 1})
metadata = st.dictionaries(st.sampled_from(FIELDS), value | st.lists(value, max_size=3))

comparisons = st.fixed_dictionaries(
    {},
    optional={
        "$eq": operand,
        "ne": operand,
        "$in": st.lists(operand, min_size=1, max_size=3),
        "nin": st.lists(operand, min_size=1, max_size=3),
        "gt": bound,
        "$gte": bound,
        "lt": bound,
        "lte": bound,
        "exists": st.booleans(),
    },
).filter(bool)
# A field called "not" takes only comparisons with a dollar, which its own tests try.
tests = st.dictionaries(
    st.sampled_from([field for field in FIELDS if field != "not"]),
    operand | st.lists(operand, min_size=1, max_size=3) | comparisons,
    min_size=1,
    max_size=2,
)
specs = st.recursive(
    tests,
    lambda parts: (
        st.builds(lambda some: {"and": some}, st.lists(parts, min_size=1, max_size=3))
        | st.builds(lambda some: {"$or": some}, st.lists(parts, min_size=1, max_size=3))
        | st.builds(lambda part: {"$not": part}, parts)
        | st.builds(lambda part, more: {"$not": part} | more, parts, tests)
    ),
    max_leaves=6,
)


def kind(value: object) -> str | None:
    if isinstance(value, bool):
        return "bool"
    if isinstance(value, (int, float)):
        return "number"
    return "text" if isinstance(value, str) else None


def stored(value: Any) -> Any:
    if kind(value) == "number" and isinstance(value, int) and not -(2**63) <= value < 2**63:
        return float("inf") if value == 10**400 else float(value)
    return value


COMPARE = {
    "eq": lambda left, right: left == right,
    "gt": lambda left, right: left > right,
    "gte": lambda left, right: left >= right,
    "lt": lambda left, right: left < right,
    "lte": lambda left, right: left <= right,
}


def passes(metadata: dict[str, Any], spec: dict[str, Any]) -> bool:
    """The rules of the language, spelt out for one item."""
    for name, wanted in spec.items():
        filters = isinstance(wanted, list) and isinstance(wanted[0], dict)
        if filters and name in ("and", "$and"):
            passed = all(passes(metadata, part) for part in wanted)
        elif filters and name in ("or", "$or"):
            passed = any(passes(metadata, part) for part in wanted)
        elif name == "$not":
            passed = not passes(metadata, wanted)
        else:
            field = metadata.get(name)
            values = field if isinstance(field, list) else [field]
            values = [stored(each) for each in values if kind(each)]
            if isinstance(wanted, list):
                wanted = {"in": wanted}
            elif not isinstance(wanted, dict):
                wanted = {"eq": wanted}
            passed = all(
                passes_comparison(values, operator.removeprefix("$"), operand)
                for operator, operand in wanted.items()
            )
        if not passed:
            return False
    return True


def passes_comparison(values: list[Any], operator: str, operand: Any) -> bool:
    if operator == "exists":
        return operand == (len(values) > 0)
    if operator == "ne":
        return not passes_comparison(values, "eq", operand)
    if operator == "in":
        return any(passes_comparison(values, "eq", each) for each in operand)
    if operator == "nin":
        return not passes_comparison(values, "in", operand)
    alike = [each for each in values if kind(each) == kind(operand)]
    return any(COMPARE[operator](each, stored(operand)) for each in alike)


def item(row: int, metadata: dict[str, Any]) -> StoredItem:
    return StoredItem(row, f"id {row}", None, None, None, None, None, None, metadata)


@contextmanager
def database(items: list[StoredItem], fields: Sequence[str] | None) -> Iterator[sqlite3.Connection]:
    connection = sqlite3.connect(":memory:")
    try:
        create_tables(connection, fields)
        insert_items(connection, items)
        yield connection
    finally:
        connection.close()


def found(items: list[dict[str, Any]], spec: dict[str, Any], fields: Sequence[str] | None = None):
    """Find the rows that pass in every way there is, which must agree."""
    parsed = parse_filter(spec)
    assert parsed is not None
    rows = range(len(items))
    with database([item(row, each) for row, each in enumerate(items)], fields) as connection:
        looked_up = look_up_all(connection, parsed, rows)
        store_columns(connection)
        from_columns = dict[Test, BitMap]()
        for test in leaves(parsed):
            columns = read_stored(connection, test.field, len(items))
            if columns is None:
                from_columns[test] = bitmap_of(np.flatnonzero(look_up(connection, test, rows)))
            else:
                from_columns[test] = columns.passing(test)
        ends = sorted({1, len(items) // 2, len(items) - 1, len(items)} - {0})
        assert added_in_steps(connection, parsed, ends) == looked_up
    assert list(combine(parsed, from_columns, rows)) == looked_up
    return looked_up


def look_up_all(connection: sqlite3.Connection, filter: Filter, rows: range) -> list[int]:
    passing = {
        test: bitmap_of(np.flatnonzero(look_up(connection, test, rows)) + rows.start)
        for test in leaves(filter)
    }
    return list(combine(filter, passing, rows))


def read_stored(connection: sqlite3.Connection, field: str, end: int) -> FieldColumns | None:
    if columns_bytes(connection, field) == 0:
        return None
    return read_columns(connection, field, end)


def added_in_steps(connection: sqlite3.Connection, filter: Filter, ends: list[int]) -> list[int]:
    """Ask after each addition; what a reader of fewer items finds is what it would have found."""
    growing = {test.field: GrowingColumns(0) for test in leaves(filter)}
    rows: list[int] = []
    for end in ends:
        passing = {
            test: growing[test.field].passing(
                test, end, partial(read_values, connection, test.field)
            )
            for test in leaves(filter)
        }
        now = list(combine(filter, passing, range(end)))
        assert [row for row in now if row < (rows[-1] + 1 if rows else 0)] == rows
        rows = now
    return rows


@settings(max_examples=80, deadline=None)
@given(
    items=st.lists(metadata, min_size=1, max_size=12),
    spec=specs,
    fields=st.none() | st.lists(st.sampled_from(FIELDS)),
)
@example([{"x": [1, 9]}, {"x": 4}, {"x": 9}], {"x": {"gte": 3, "lt": 5}}, None)
@example([{"x": [1, 9]}, {"x": 4}, {"x": 9}], {"x": {"gte": 3, "lt": 5}}, [])
@example([{"x": 0.1 + 0.2}, {"x": 0.3}], {"x": 0.30000000000000004}, [])
def test_random_filters_let_through_what_their_rules_say(
    items: list[dict[str, Any]], spec: dict[str, Any], fields: list[str] | None
) -> None:
    expected = [row for row, each in enumerate(items) if passes(each, spec)]
    assert found(items, spec, fields) == expected


def test_as_many_values_as_a_filter_may_have() -> None:
    items = [{"number": number} for number in range(1500)]
    wanted = list(range(1, 1500, 2)) + [str(number) for number in range(250)]
    assert found(items, {"number": wanted}) == list(range(1, 1500, 2))
