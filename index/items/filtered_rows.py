"""Finds the items that pass a filter."""

from __future__ import annotations

import json
import operator
import sqlite3
from collections.abc import Collection, Mapping
from functools import reduce
from typing import Any

import numpy as np
from numpy.typing import NDArray

from index.items.filter_tree import (
    And,
    Equal,
    Exists,
    Filter,
    Not,
    Or,
    Range,
    Test,
    field_scalars,
    leaves,
)
from index.items.tables import KIND_CODES

_SQL = {"gt": ">", "gte": ">=", "lt": "<", "lte": "<="}
_PYTHON = {"gt": operator.gt, "gte": operator.ge, "lt": operator.lt, "lte": operator.le}
# SQLite's default limit of variables in one statement is 999 in older builds.
_VALUES_AT_A_TIME = 500

Mask = NDArray[np.bool_]


def rows_passing(connection: sqlite3.Connection, filter: Filter, rows: range) -> NDArray[np.int64]:
    """Find the items that pass a filter.

    Args:
        connection: to a database with the tables of `index.items.tables`.
        filter: to pass.
        rows: that the items have. One that no item has passes what an item without metadata
            does; the caller has to leave it out.

    Returns:
        Rows, ascending.
    """
    masks = masks_of(connection, set(leaves(filter)), rows)
    return np.flatnonzero(combine(filter, masks)) + rows.start


def masks_of(
    connection: sqlite3.Connection, tests: Collection[Test], rows: range
) -> dict[Test, Mask]:
    """Find the items that pass each of some tests.

    What fields with an index pass is looked up there. For all other fields together every
    item's metadata is read once.

    Args:
        connection: to a database with the tables of `index.items.tables`.
        tests: to pass.
        rows: that the items have.

    Returns:
        By test, a mask over `rows`.
    """
    every_field = bool(connection.execute("SELECT every_field FROM filter_settings").fetchone()[0])
    masks: dict[Test, Mask] = {test: np.zeros(len(rows), dtype=np.bool_) for test in tests}
    unindexed: dict[Test, Mask] = {}
    for test, mask in masks.items():
        indexed = connection.execute(
            "SELECT field, has_lists FROM filter_fields WHERE name = ?", (test.field,)
        ).fetchone()
        if indexed is not None:
            field, has_lists = indexed
            mask[:] = _look_up(connection, field, bool(has_lists), test, rows)
        elif not every_field:
            unindexed[test] = mask
    if unindexed:
        _read_through(connection, unindexed, rows)
    return masks


def combine(filter: Filter, masks: Mapping[Test, Mask]) -> Mask:
    """Apply the "and", "or" and "not" of a filter to what its tests let through.

    Args:
        filter: the tree.
        masks: of each of its tests.
    """
    if isinstance(filter, Not):
        return ~combine(filter.part, masks)
    if isinstance(filter, And):
        return reduce(np.logical_and, (combine(part, masks) for part in filter.parts))
    if isinstance(filter, Or):
        return reduce(np.logical_or, (combine(part, masks) for part in filter.parts))
    return masks[filter]


def _look_up(
    connection: sqlite3.Connection, field: int, has_lists: bool, test: Test, rows: range
) -> Mask:
    def found(where: str, values: tuple[object, ...]) -> Mask:
        mask = np.zeros(len(rows), dtype=np.bool_)
        # One long text is read several times faster than as many lines.
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
    # Where an item has one value, that has to be within all bounds. One walk over what lies
    # between them takes the time of what it finds, however much lies on their other sides.
    between = "".join(where for where, _ in bounds)
    return found(between, tuple(value for _, values in bounds for value in values))


def _equal_probes(test: Equal) -> list[tuple[str, tuple[object, ...]]]:
    """Return the ends of the statements that look values up, and what stands for their marks."""
    probes: list[tuple[str, tuple[object, ...]]] = []
    for kind, code in KIND_CODES.items():
        values = [each.value for each in test.values if each.kind == kind]
        for start in range(0, len(values), _VALUES_AT_A_TIME):
            some = values[start : start + _VALUES_AT_A_TIME]
            marks = ",".join("?" * len(some))
            probes.append((f" AND kind = ? AND value IN ({marks})", (code, *some)))
    return probes


def _read_through(connection: sqlite3.Connection, masks: Mapping[Test, Mask], rows: range) -> None:
    """Mark the items that pass tests in the tests' masks."""
    # Items without the fields are told by the text alone. The others are not read with SQLite's
    # JSON functions, which take some numbers for other floats than Python does.
    keys = {f"{json.dumps(test.field, ensure_ascii=False)}:" for test in masks}
    has_a_key = " OR ".join(["instr(metadata, ?)"] * len(keys))
    statement = f"SELECT row, metadata FROM items WHERE {has_a_key}"
    for row, text in connection.execute(statement, tuple(keys)):
        metadata: dict[str, Any] = json.loads(text)
        for test, mask in masks.items():
            if test.field in metadata and _passes(test, metadata[test.field]):
                mask[row - rows.start] = True


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
