"""The items of a collection in SQLite: ids, texts and metadata, and the evaluation of filters."""

from __future__ import annotations

import json
import operator
import sqlite3
import threading
from collections.abc import Callable, Collection, Mapping, Sequence
from functools import partial, reduce
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from aladin_index.items.filters import (
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
from aladin_index.items.selection import Selection, SelectionCache
from aladin_index.items.tables import (
    KIND_CODES,
    StoredItem,
    columns_of,
    count_fields,
    stored_item,
    unknown_fields,
)
from aladin_network.errors import IndexCorruptError

_SQL = {"gt": ">", "gte": ">=", "lt": "<", "lte": "<="}
_PYTHON = {"gt": operator.gt, "gte": operator.ge, "lt": operator.lt, "lte": operator.le}
# SQLite's default limit of variables in one statement is 999 in older builds.
_VALUES_AT_A_TIME = 500

Mask = NDArray[np.bool_]


def rows_passing(connection: sqlite3.Connection, filter: Filter, rows: range) -> NDArray[np.int64]:
    """Find the items that pass a filter.

    Args:
        connection: to a database with the tables of `aladin_index.items.tables`.
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
        connection: to a database with the tables of `aladin_index.items.tables`.
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


# SQLite's default limit of variables in one statement is 999 in older builds.
_BATCH = 500
_CACHE_BYTES = 64 * 2**20

T = TypeVar("T")


class ItemStore:
    """Reads the items of one side; safe to use from any number of threads."""

    def __init__(self, path: Path) -> None:
        """Open the file that `aladin_index.items.tables.write_items` wrote; it is never written
        again.

        Raises:
            IndexCorruptError: not such a file.
        """
        self._path = path
        self._uri = f"{path.absolute().as_uri()}?mode=ro&immutable=1"
        self._local = threading.local()
        self._lock = threading.Lock()
        self._connections: list[sqlite3.Connection] = []
        # What passes a filter never changes, for the file does not.
        self._selections: SelectionCache[Filter] = SelectionCache(_CACHE_BYTES)
        # To count the lines would be to read them all. Rows have no gaps.
        last = self._read("SELECT MAX(row) FROM items")[0][0]
        self.count = 0 if last is None else int(last) + 1
        self._columns = self._guarded(columns_of)

    def close(self) -> None:
        """Close the connections of all threads."""
        with self._lock:
            for connection in self._connections:
                connection.close()
            self._connections.clear()
            self._local = threading.local()

    def by_rows(self, rows: Sequence[int]) -> list[StoredItem]:
        """Return the items at some rows, in the order asked for."""
        found: dict[int, StoredItem] = {}
        for start in range(0, len(rows), _BATCH):
            batch = rows[start : start + _BATCH]
            marks = ",".join("?" * len(batch))
            statement = f"SELECT {self._columns} FROM items WHERE row IN ({marks})"
            for line in self._read(statement, tuple(int(row) for row in batch)):
                found[line[0]] = stored_item(line)
        return [found[row] for row in rows]

    def by_id(self, item_id: str) -> StoredItem | None:
        """Return the item with this id, or None where there is none."""
        try:
            lines = self._read(f"SELECT {self._columns} FROM items WHERE id = ?", (item_id,))
        except UnicodeEncodeError:  # a lone surrogate is part of no stored id
            return None
        return stored_item(lines[0]) if lines else None

    def rows_by_id(self) -> dict[str, int]:
        """Return the row of every id; reads all items."""
        return dict(self._read("SELECT id, row FROM items"))

    def count_fields(self) -> int:
        """Return how many metadata fields have an index for filters."""
        return self._guarded(count_fields)

    def unknown_fields(self, names: Collection[str]) -> set[str]:
        """Return those of some metadata fields that have no index for filters."""
        return self._guarded(partial(unknown_fields, names=names))

    def select(self, filter: Filter) -> Selection:
        """Return the rows that pass a filter."""
        selection = self._selections.get(filter)
        if selection is not None:
            return selection
        # Filters differ from request to request, the tests in them less so.
        tests = set(leaves(filter))
        known = {test: self._selections.get(test) for test in tests}
        masks = {test: found.mask for test, found in known.items() if found is not None}
        missing = tests - masks.keys()
        if missing:
            rows = range(self.count)
            found = self._guarded(lambda connection: masks_of(connection, missing, rows))
            for test, mask in found.items():
                self._selections.put(test, Selection(mask))
            masks |= found
        selection = Selection(combine(filter, masks))
        self._selections.put(filter, selection)
        return selection

    def _read(self, statement: str, values: tuple[Any, ...] = ()) -> list[Any]:
        try:
            return self._connection().execute(statement, values).fetchall()
        except sqlite3.Error as error:
            raise self._unreadable(error) from error

    def _guarded(self, read: Callable[[sqlite3.Connection], T]) -> T:
        try:
            return read(self._connection())
        except sqlite3.Error as error:
            raise self._unreadable(error) from error

    def _unreadable(self, error: sqlite3.Error) -> IndexCorruptError:
        return IndexCorruptError(self._path, f"cannot be read ({error})")

    def _connection(self) -> sqlite3.Connection:
        """Return this thread's own connection: one thread's scan does not hold up another."""
        connection: sqlite3.Connection | None = getattr(self._local, "connection", None)
        if connection is None:
            # `close` may come from another thread than the one that reads.
            connection = sqlite3.connect(self._uri, uri=True, check_same_thread=False)
            self._local.connection = connection
            with self._lock:
                self._connections.append(connection)
        return connection
