"""The table of sorted columns in a database of items, from which filters are answered."""

from __future__ import annotations

import sqlite3
from array import array
from collections.abc import Iterable, Sequence
from itertools import groupby
from operator import itemgetter
from typing import Any, NamedTuple

import numpy as np

from aladin_index.items.columns import Column, FieldColumns, Texts, Value
from aladin_index.items.filters import KIND_CODES, Kind

_KINDS: dict[int, Kind] = {code: kind for kind, code in KIND_CODES.items()}
_TABLE = """
CREATE TABLE filter_columns (
    field INTEGER NOT NULL, kind INTEGER NOT NULL,
    form TEXT NOT NULL, "values" BLOB NOT NULL, counts BLOB NOT NULL, rows BLOB NOT NULL,
    UNIQUE (field, kind)
)
"""

# Forms in which values are stored: 64-bit integers, 64-bit floats, and texts, which are their
# lengths in bytes as 32-bit numbers and then the texts in UTF-8.
_INTEGERS, _FLOATS, _TEXTS = "q", "d", "t"
# Largest whole number up to which floats hold all of them.
_LARGEST_EXACT = 2**53
# Columns beyond this size stay in the database.
_MOST_BYTES = 2**28


class StoredColumn(NamedTuple):
    """A column in the form in which it is stored.

    Attributes:
        values: Values in ascending order, without repetition.
        counts: Number of rows of each value, as unsigned 32-bit numbers.
        rows: Rows of all values, those of a value in ascending order, as unsigned 32-bit numbers.
    """

    form: str
    values: bytes
    counts: bytes
    rows: bytes


def store_columns(connection: sqlite3.Connection) -> None:
    """Write the columns of all indexed fields; the caller commits.

    A field of which one kind cannot be stored as a column gets none.
    """
    connection.execute(_TABLE)
    lines = connection.execute("SELECT field, kind, value, row FROM fields ORDER BY 1, 2, 3, 4")
    for field, of_field in groupby(lines, key=itemgetter(0)):
        packed = {
            kind: pack_column((value, row) for _, _, value, row in of_kind)
            for kind, of_kind in groupby(of_field, key=itemgetter(1))
        }
        if all(packed.values()):
            connection.executemany(
                "INSERT INTO filter_columns VALUES (?,?,?,?,?,?)",
                ((field, kind, *stored) for kind, stored in packed.items() if stored is not None),
            )


def columns_bytes(connection: sqlite3.Connection, name: str) -> int:
    """Return the size of the columns of a field, or 0 if it has none."""
    size = connection.execute(
        'SELECT SUM(length("values") + length(counts) + length(rows)) FROM filter_columns'
        " WHERE field = (SELECT field FROM filter_fields WHERE name = ?)",
        (name,),
    ).fetchone()[0]
    return size or 0


def read_columns(connection: sqlite3.Connection, name: str, end: int) -> FieldColumns:
    """Read the columns of a field that has some."""
    lines = connection.execute(
        'SELECT has_lists, kind, form, "values", counts, rows'
        " FROM filter_columns JOIN filter_fields USING (field) WHERE name = ?",
        (name,),
    ).fetchall()
    try:
        columns: dict[Kind, Column] = {
            _KINDS[kind]: unpack_column(StoredColumn(*stored), end) for _, kind, *stored in lines
        }
    except (KeyError, TypeError, ValueError) as error:
        raise sqlite3.DatabaseError(f"columns of the field {name!r}: {error}") from error
    return FieldColumns(columns, any(has_lists for has_lists, *_ in lines))


def pack_column(lines: Iterable[tuple[Value, int]]) -> StoredColumn | None:
    """Return the stored form of ascending values of one kind with their rows.

    None if it is too large to be kept in memory, or no 64-bit form holds all its numbers exactly.
    """
    counts, rows, lengths, texts = array("I"), array("I"), array("I"), bytearray()
    numbers: array[Any] | None = array(_INTEGERS)
    previous: Value | None = None
    for value, row in lines:
        rows.append(row)
        if value == previous:
            counts[-1] += 1
            continue
        previous = value
        counts.append(1)
        if isinstance(value, str):
            text = value.encode()
            lengths.append(len(text))
            texts += text
        else:
            numbers = _appended(numbers, value)
            if numbers is None:
                return None
        if len(texts) + 4 * len(rows) > _MOST_BYTES:
            return None
    if lengths:
        values, form = lengths.tobytes() + texts, _TEXTS
    else:
        values, form = numbers.tobytes(), numbers.typecode
    return StoredColumn(form, values, counts.tobytes(), rows.tobytes())


def _appended(numbers: array[Any], value: int | float) -> array[Any] | None:
    """Append a number to an array of smaller ones, which becomes one of floats if need be.

    None if a float would not hold a whole number exactly.
    """
    if isinstance(value, float) and numbers.typecode == _INTEGERS:
        if numbers and max(-numbers[0], numbers[-1]) > _LARGEST_EXACT:
            return None
        numbers = array(_FLOATS, numbers)
    if isinstance(value, int) and numbers.typecode == _FLOATS and abs(value) > _LARGEST_EXACT:
        return None
    numbers.append(value)
    return numbers


def unpack_column(stored: StoredColumn, end: int) -> Column:
    """Return the column of a stored form, whose memory it shares.

    Raises `ValueError` if it is damaged, or a row is not below `end`.
    """
    counts = np.frombuffer(stored.counts, dtype=np.uint32)
    rows = np.frombuffer(stored.rows, dtype=np.uint32)
    if stored.form == _TEXTS:
        lengths = np.frombuffer(stored.values[: 4 * len(counts)], dtype=np.uint32)
        values: Sequence[int | float] | Sequence[bytes] = Texts(
            lengths, stored.values[4 * len(counts) :]
        )
    elif stored.form in (_INTEGERS, _FLOATS):
        numbers: array[Any] = array(stored.form)
        numbers.frombytes(stored.values)
        values = numbers
    else:
        raise ValueError(f"expected a known form of values, got {stored.form!r}")
    starts = np.zeros(len(counts) + 1, dtype=np.int64)
    np.cumsum(counts, out=starts[1:])
    if len(values) != len(counts) or int(starts[-1]) != len(rows):
        raise ValueError(f"expected {len(counts)} values of {len(rows)} rows")
    if len(rows) and int(rows.max()) >= end:
        raise ValueError(f"expected rows below {end}, got {int(rows.max())}")
    return Column(values, starts, rows)
