"""Tests of filters that are looked up in a database of items, where no column is in memory.

That is the case of fields without an index, of added items, and of fields too large for memory.
"""

from __future__ import annotations

import json
import operator
import sqlite3
from collections.abc import Iterator
from functools import reduce
from typing import Any

import numpy as np
from numpy.typing import NDArray

from aladin_index.items.filters import KIND_CODES, Equal, Exists, Range, Test, field_scalars

_SQL = {"gt": ">", "gte": ">=", "lt": "<", "lte": "<="}
_PYTHON = {"gt": operator.gt, "gte": operator.ge, "lt": operator.lt, "lte": operator.le}
# The default limit of variables per statement is 999 in older builds of SQLite.
VALUES_A_STATEMENT = 500

Mask = NDArray[np.bool_]


def look_up(connection: sqlite3.Connection, test: Test, rows: range) -> Mask:
    """Find the items that pass a test.

    A test of a field with an index is looked up there, for another one every item's metadata is
    read.
    """
    indexed = connection.execute(
        "SELECT field, has_lists FROM filter_fields WHERE name = ?", (test.field,)
    ).fetchone()
    if indexed is not None:
        field, has_lists = indexed
        return _look_up(connection, field, bool(has_lists), test, rows)
    if connection.execute("SELECT every_field FROM filter_settings").fetchone()[0]:
        return np.zeros(len(rows), dtype=np.bool_)
    return _read_through(connection, test, rows)


def read_values(
    connection: sqlite3.Connection, field: str, rows: range
) -> Iterator[tuple[int, object]]:
    """Yield the row and the value of every item that may have one in a field."""
    # Items without the field are recognised by the text alone. The others are not read with
    # SQLite's JSON functions, which convert some numbers to other floats than Python does.
    key = f"{json.dumps(field, ensure_ascii=False)}:"
    statement = (
        "SELECT row, metadata FROM items WHERE row >= ? AND row < ? AND instr(metadata, ?) > 0"
    )
    for row, text in connection.execute(statement, (rows.start, rows.stop, key)):
        metadata: dict[str, Any] = json.loads(text)
        yield row, metadata.get(field)


def _look_up(
    connection: sqlite3.Connection, field: int, has_lists: bool, test: Test, rows: range
) -> Mask:
    def found(where: str, values: tuple[object, ...]) -> Mask:
        mask = np.zeros(len(rows), dtype=np.bool_)
        # One long text is read several times faster than as many rows.
        statement = f"SELECT group_concat(row) FROM fields WHERE field = ?{where}"
        text: str | None = connection.execute(statement, (field, *values)).fetchone()[0]
        if text is not None:
            mask[np.fromstring(text, dtype=np.int64, sep=",") - rows.start] = True
        return mask

    if isinstance(test, Exists):
        return found("", ())
    if isinstance(test, Equal):
        return reduce(np.logical_or, (found(*probe) for probe in _equal_probes(test)))
    bounds = [
        (f" AND kind = ? AND value {_SQL[comparison]} ?", (KIND_CODES[kind], value))
        for comparison, (kind, value) in test.bounds
    ]
    if has_lists:
        return reduce(np.logical_and, (found(*bound) for bound in bounds))
    # If an item has one value, it has to be within all bounds. One scan between them takes time
    # proportional to what it finds, whatever lies beyond them.
    between = "".join(where for where, _ in bounds)
    return found(between, tuple(value for _, values in bounds for value in values))


def _equal_probes(test: Equal) -> list[tuple[str, tuple[object, ...]]]:
    """Return the ends of the look-up statements, and the values of their placeholders."""
    probes: list[tuple[str, tuple[object, ...]]] = []
    for kind, code in KIND_CODES.items():
        values = [each.value for each in test.values if each.kind == kind]
        for start in range(0, len(values), VALUES_A_STATEMENT):
            some = values[start : start + VALUES_A_STATEMENT]
            marks = ",".join("?" * len(some))
            probes.append((f" AND kind = ? AND value IN ({marks})", (code, *some)))
    return probes


def _read_through(connection: sqlite3.Connection, test: Test, rows: range) -> Mask:
    mask = np.zeros(len(rows), dtype=np.bool_)
    for row, value in read_values(connection, test.field, rows):
        mask[row - rows.start] = _passes(test, value)
    return mask


def _passes(test: Test, value: object) -> bool:
    scalars = list(field_scalars(value))
    if isinstance(test, Range):
        return all(
            any(
                each.kind == bound.kind and _PYTHON[comparison](each.value, bound.value)
                for each in scalars
            )
            for comparison, bound in test.bounds
        )
    return any(isinstance(test, Exists) or each in test.values for each in scalars)
