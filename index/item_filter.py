"""Finds the items that pass a filter."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from index.filters import (
    And,
    Condition,
    Filter,
    Kind,
    Not,
    Scalar,
    conditions_of,
    field_scalars,
)
from index.item_tables import KIND_CODES

_COMPARISONS = {"gt": ">", "gte": ">=", "lt": "<", "lte": "<="}
# SQLite's default limit of variables in one statement is 999 in older builds.
_OPERANDS_AT_A_TIME = 500

Mask = NDArray[np.bool_]


def rows_passing(connection: sqlite3.Connection, filter: Filter, rows: range) -> NDArray[np.int64]:
    """Find the items that pass a filter.

    Args:
        connection: to a database with the tables of `index.item_tables`.
        filter: to pass.
        rows: that the items have; a row in it that no item has passes what it cannot fail, such
            as an "ne", and has to be left out by the caller.

    Returns:
        Rows, ascending.
    """
    masks = condition_masks(connection, set(conditions_of(filter)), rows)
    return np.flatnonzero(combine(filter, masks)) + rows.start


def condition_masks(
    connection: sqlite3.Connection, conditions: set[Condition], rows: range
) -> dict[Condition, Mask]:
    """Find the items that pass each of some tests.

    Fields with an index are looked up there. For all others together every item's metadata is
    read once.

    Args:
        connection: to a database with the tables of `index.item_tables`.
        conditions: the tests.
        rows: that the items have.

    Returns:
        By test, a mask over `rows`.
    """
    every_field = bool(connection.execute("SELECT every_field FROM filter_settings").fetchone()[0])
    masks: dict[Condition, Mask] = {}
    unindexed: list[Condition] = []
    for condition in conditions:
        line = connection.execute(
            "SELECT field FROM filter_fields WHERE name = ?", (condition.field,)
        ).fetchone()
        if line is not None:
            masks[condition] = _looked_up(connection, line[0], condition, rows)
        elif every_field:  # no item has it
            masks[condition] = np.zeros(len(rows), dtype=np.bool_)
        else:
            unindexed.append(condition)
    if unindexed:
        masks |= _read_through(connection, unindexed, rows)
    return masks


def combine(filter: Filter, masks: Mapping[Condition, Mask]) -> Mask:
    """Apply a filter's "and", "or" and "not" to what its tests let through.

    Args:
        filter: the tree.
        masks: of each of its tests.
    """
    if isinstance(filter, Condition):
        return masks[filter]
    if isinstance(filter, Not):
        return ~combine(filter.part, masks)
    parts = [combine(part, masks) for part in filter.parts]
    return np.logical_and.reduce(parts) if isinstance(filter, And) else np.logical_or.reduce(parts)


def _looked_up(
    connection: sqlite3.Connection, field: int, condition: Condition, rows: range
) -> Mask:
    mask = np.zeros(len(rows), dtype=np.bool_)
    for where, values in _probes(condition):
        # One long text is read many times faster than as many lines.
        statement = f"SELECT group_concat(row) FROM fields WHERE field = ?{where}"
        text: str | None = connection.execute(statement, (field, *values)).fetchone()[0]
        if text is not None:
            mask[np.fromstring(text, dtype=np.int64, sep=",") - rows.start] = True
    return mask


def _probes(condition: Condition) -> list[tuple[str, tuple[Any, ...]]]:
    """Return what follows "field = ?" in the look-ups of a test, and the values in it."""
    if condition.operator == "exists":
        return [("", ())]
    if condition.operator != "in":
        comparison = _COMPARISONS[condition.operator]
        kind, value = condition.operands[0]
        return [(f" AND kind = ? AND value {comparison} ?", (KIND_CODES[kind], value))]
    by_kind: dict[Kind, list[int | float | str]] = {}
    for kind, value in condition.operands:
        by_kind.setdefault(kind, []).append(value)
    probes: list[tuple[str, tuple[Any, ...]]] = []
    for kind, values in by_kind.items():
        for start in range(0, len(values), _OPERANDS_AT_A_TIME):
            some = values[start : start + _OPERANDS_AT_A_TIME]
            marks = ",".join("?" * len(some))
            probes.append((f" AND kind = ? AND value IN ({marks})", (KIND_CODES[kind], *some)))
    return probes


def _read_through(
    connection: sqlite3.Connection, conditions: Sequence[Condition], rows: range
) -> dict[Condition, Mask]:
    masks = {condition: np.zeros(len(rows), dtype=np.bool_) for condition in conditions}
    # Not SQLite's JSON functions: those read some numbers to other floats than Python does.
    for row, text in connection.execute("SELECT row, metadata FROM items"):
        metadata: dict[str, Any] = json.loads(text)
        for condition, mask in masks.items():
            if condition.field in metadata and _holds(condition, metadata[condition.field]):
                mask[row - rows.start] = True
    return masks


def _holds(condition: Condition, value: object) -> bool:
    if condition.operator == "in":
        return any(each in condition.operands for each in field_scalars(value))
    if condition.operator == "exists":
        return any(True for _ in field_scalars(value))
    bound = condition.operands[0]
    return any(
        each.kind == bound.kind and _compares(condition.operator, each, bound)
        for each in field_scalars(value)
    )


def _compares(operator: str, left: Scalar, right: Scalar) -> bool:
    # Of one kind, so the pairs compare as their values do.
    if operator == "gt":
        return left > right
    if operator == "gte":
        return left >= right
    return left < right if operator == "lt" else left <= right
