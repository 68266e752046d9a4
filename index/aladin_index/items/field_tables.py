"""Reads the table of filter values in its own order: items sorted by a field, and a field's values.

The table's key is (field, kind, value, row), so a page of a sorted list costs what the page holds,
however many items there are. It is part of each database of items: those of a generation, and
those added since.
"""

from __future__ import annotations

import sqlite3
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import groupby
from typing import Literal, NamedTuple

from aladin_index.facts import ValueRange
from aladin_index.items.filters import KIND_CODES, Kind

# A field with more values is described by its range alone.
MAX_VALUES = 50
# Metadata may have any number of fields: those beyond this number are not described.
MAX_FIELDS = 100
ValuesEnd = Literal["least", "greatest"]
_KINDS: dict[int, Kind] = {code: kind for kind, code in KIND_CODES.items()}
_LINES_AT_A_TIME = 256


class FieldLine(NamedTuple):
    """One value of one item in a field; lines are ordered as the table is.

    Attributes:
        kind: Code of the value's kind, see `aladin_index.items.tables.KIND_CODES`.
        value: Value; a bool is 0 or 1.
    """

    kind: int
    value: int | float | str
    row: int


@dataclass(frozen=True, kw_only=True)
class FieldValues(ValueRange):
    """The values of one kind in a field as they are stored: bools are numbers.

    Attributes:
        counts: Number of items by value, or None if there are more than `MAX_VALUES`.
    """

    least: int | float | str
    greatest: int | float | str
    counts: dict[int | float | str, int] | None

    def as_written(self, value: int | float | str) -> bool | int | float | str:
        """Return one of the values as it is in metadata: bools are stored as numbers."""
        return bool(value) if self.kind == "bool" else value

    def most_frequent(self) -> dict[bool | int | float | str, int] | None:
        """Return the number of items by value as it is in metadata, the most frequent first."""
        if self.counts is None:
            return None
        most = sorted(self.counts.items(), key=lambda pair: -pair[1])
        return {self.as_written(value): count for value, count in most}


def field_lines(
    connection: sqlite3.Connection, name: str, after: FieldLine | None, *, descending: bool
) -> list[FieldLine]:
    """Read some of the lines of a field after one, in their order; none at the end."""
    line = connection.execute("SELECT field FROM filter_fields WHERE name = ?", (name,)).fetchone()
    if line is None:
        return []
    beyond, direction = ("<", "DESC") if descending else (">", "ASC")
    where = "" if after is None else f" AND (kind, value, row) {beyond} (?, ?, ?)"
    statement = (
        f"SELECT kind, value, row FROM fields WHERE field = ?{where}"
        f" ORDER BY kind {direction}, value {direction}, row {direction} LIMIT ?"
    )
    values = (line[0], *(after or ()), _LINES_AT_A_TIME)
    return [FieldLine._make(found) for found in connection.execute(statement, values)]


def describe_fields(connection: sqlite3.Connection) -> dict[str, list[FieldValues]]:
    """Return the values of each kind of at most `MAX_FIELDS` indexed fields, by name in order."""
    names = connection.execute(
        "SELECT name, field FROM filter_fields ORDER BY name LIMIT ?", (MAX_FIELDS,)
    ).fetchall()
    return {name: list(_values(connection, field)) for name, field in names}


def count_values(
    connection: sqlite3.Connection, name: str, kind: Kind, most: int, end: ValuesEnd
) -> Counter[int | float | str]:
    """Count the items of the least or the greatest values of one kind in a field."""
    order = "ASC" if end == "least" else "DESC"
    # Groups come in the order of the key: the scan ends with the last one that is wanted.
    groups = connection.execute(
        "SELECT value, COUNT(*) FROM fields JOIN filter_fields USING (field)"
        f" WHERE name = ? AND kind = ? GROUP BY value ORDER BY value {order} LIMIT ?",
        (name, KIND_CODES[kind], most),
    )
    return Counter(dict(groups.fetchall()))


def merge_values(one: list[FieldValues], other: list[FieldValues]) -> list[FieldValues]:
    """Combine two descriptions of the same field, of different items."""
    by_kind = sorted([*one, *other], key=lambda values: KIND_CODES[values.kind])
    return [_joined(list(same)) for _, same in groupby(by_kind, key=lambda values: values.kind)]


def _joined(parts: list[FieldValues]) -> FieldValues:
    total: Counter[int | float | str] = Counter()
    for part in parts:
        total.update(part.counts or {})
    is_counted = all(part.counts is not None for part in parts) and len(total) <= MAX_VALUES
    counts = dict(total) if is_counted else None
    # Values of one kind can be compared.
    least = min((part.least for part in parts), key=_order)
    greatest = max((part.greatest for part in parts), key=_order)
    return FieldValues(kind=parts[0].kind, least=least, greatest=greatest, counts=counts)


def _order(value: int | float | str) -> tuple[str, int | float]:
    return (value, 0) if isinstance(value, str) else ("", value)


def _values(connection: sqlite3.Connection, field: int) -> Iterator[FieldValues]:
    for code, kind in _KINDS.items():
        least, greatest = (
            connection.execute(
                f"SELECT {extreme}(value) FROM fields WHERE field = ? AND kind = ?", (field, code)
            ).fetchone()[0]
            for extreme in ("MIN", "MAX")
        )
        if least is None:
            continue
        # Groups come in the order of the key: the scan ends with the last one that is wanted.
        groups = connection.execute(
            "SELECT value, COUNT(*) FROM fields WHERE field = ? AND kind = ?"
            " GROUP BY value LIMIT ?",
            (field, code, MAX_VALUES + 1),
        ).fetchall()
        counts = dict(groups) if len(groups) <= MAX_VALUES else None
        yield FieldValues(kind=kind, least=least, greatest=greatest, counts=counts)
