"""The items of a collection in SQLite: ids, texts and metadata, and the evaluation of filters."""

from __future__ import annotations

import json
import operator
import sqlite3
import threading
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from functools import cached_property, partial, reduce
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from aladin_index.items.field_tables import FieldLine, FieldValues, describe_fields, field_lines
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
    unknown_fields,
)
from aladin_network.errors import IndexCorruptError

_SQL = {"gt": ">", "gte": ">=", "lt": "<", "lte": "<="}
_PYTHON = {"gt": operator.gt, "gte": operator.ge, "lt": operator.lt, "lte": operator.le}
# The default limit of variables per statement is 999 in older builds of SQLite.
VALUES_A_STATEMENT = 500

Mask = NDArray[np.bool_]

_IDS_AT_A_TIME = 10_000
_CACHE_BYTES = 64 * 2**20

T = TypeVar("T")


def rows_passing(connection: sqlite3.Connection, filter: Filter, rows: range) -> NDArray[np.int64]:
    """Find the items that pass a filter.

    Args:
        connection: Connection to a database with the tables of `aladin_index.items.tables`.
        filter: Filter to apply.
        rows: Row numbers of the items. A row without an item is treated like an item without
            metadata; the caller has to exclude it.

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
        connection: Connection to a database with the tables of `aladin_index.items.tables`.
        tests: Tests to apply.
        rows: Row numbers of the items.

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
    """Apply the "and", "or" and "not" of a filter to the masks of its tests.

    Args:
        filter: Filter as a tree.
        masks: Mask of each of its tests.
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


def _read_through(connection: sqlite3.Connection, masks: Mapping[Test, Mask], rows: range) -> None:
    """Read all items, and mark those that pass tests in the masks of the tests."""
    # Items without the fields are recognised by the text alone. The others are not read with
    # SQLite's JSON functions, which convert some numbers to other floats than Python does.
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


class ThreadConnections:
    """Connections to a database of items for reading, one per thread; thread-safe.

    A scan by one thread does not delay the others.
    """

    def __init__(self, path: Path, connect: Callable[[], sqlite3.Connection]) -> None:
        """Store the arguments; nothing is opened yet.

        Args:
            path: Path of the database, named in errors.
            connect: Function that opens a connection, which any thread may close.
        """
        self._path = path
        self._connect = connect
        self._lock = threading.Lock()
        self._local = threading.local()
        self._opened: list[sqlite3.Connection] = []

    def open(self) -> sqlite3.Connection:
        """Open a connection, which `close` closes."""
        with self._lock:
            connection = self._connect()
            self._opened.append(connection)
            return connection

    def close(self) -> None:
        """Close the connections of all threads."""
        with self._lock:
            for connection in self._opened:
                connection.close()
            self._opened.clear()
            self._local = threading.local()

    def run(self, read: Callable[[sqlite3.Connection], T]) -> T:
        """Call `read` with the connection of this thread.

        Raises:
            IndexCorruptError: If the database cannot be read.
        """
        try:
            return read(self._connection())
        except sqlite3.Error as error:
            raise self.damaged(error) from error

    def lines(self, statement: str, values: tuple[Any, ...] = ()) -> list[Any]:
        """Return the result of a statement.

        Raises:
            IndexCorruptError: If the database cannot be read.
        """
        try:
            return self._connection().execute(statement, values).fetchall()
        except sqlite3.Error as error:
            raise self.damaged(error) from error

    def damaged(self, error: sqlite3.Error) -> IndexCorruptError:
        """Return the error that reports an unreadable database."""
        return IndexCorruptError(self._path, f"cannot be read ({error})")

    def _connection(self) -> sqlite3.Connection:
        connection: sqlite3.Connection | None = getattr(self._local, "connection", None)
        if connection is None:
            connection = self._local.connection = self.open()
        return connection


class ItemStore:
    """Reads the items of one collection; thread-safe."""

    def __init__(self, path: Path) -> None:
        """Open a file of `aladin_index.items.tables.write_items`, which never changes.

        Raises:
            IndexCorruptError: If it is not such a file.
        """
        uri = f"{path.absolute().as_uri()}?mode=ro&immutable=1"
        self._database = ThreadConnections(
            path, lambda: sqlite3.connect(uri, uri=True, check_same_thread=False)
        )
        # The rows that pass a filter never change, because the file does not.
        self._selections: SelectionCache[Filter] = SelectionCache(_CACHE_BYTES)
        # Counting the rows would read all of them. Row numbers have no gaps.
        last = self._database.lines("SELECT MAX(row) FROM items")[0][0]
        self.count = 0 if last is None else int(last) + 1
        self._columns = self._database.run(columns_of)

    def close(self) -> None:
        """Close the connections of all threads."""
        self._database.close()

    def by_rows(self, rows: Sequence[int]) -> list[StoredItem]:
        """Return the items at some rows, in the given order."""
        found: dict[int, StoredItem] = {}
        for start in range(0, len(rows), VALUES_A_STATEMENT):
            batch = rows[start : start + VALUES_A_STATEMENT]
            marks = ",".join("?" * len(batch))
            statement = f"SELECT {self._columns} FROM items WHERE row IN ({marks})"
            for line in self._database.lines(statement, tuple(int(row) for row in batch)):
                found[line[0]] = stored_item(line)
        return [found[row] for row in rows]

    def by_id(self, item_id: str) -> StoredItem | None:
        """Return the item with this id, or None if there is none."""
        try:
            lines = self._database.lines(
                f"SELECT {self._columns} FROM items WHERE id = ?", (item_id,)
            )
        except UnicodeEncodeError:  # a lone surrogate is part of no stored id
            return None
        return stored_item(lines[0]) if lines else None

    def ids(self) -> Iterator[tuple[str, int]]:
        """Yield the id and the row of every item, by row; reads some thousands at a time."""
        for start in range(0, self.count, _IDS_AT_A_TIME):
            select = "SELECT id, row FROM items WHERE row >= ? AND row < ? ORDER BY row"
            yield from self._database.lines(select, (start, start + _IDS_AT_A_TIME))

    def count_fields(self) -> int:
        """Return how many metadata fields have an index for filters."""
        return self._database.run(count_fields)

    def field_lines(
        self, name: str, after: FieldLine | None, *, descending: bool
    ) -> list[FieldLine]:
        """Read values of a field in their order, see `aladin_index.items.field_tables`."""
        read = partial(field_lines, name=name, after=after, descending=descending)
        return self._database.run(read)

    @cached_property
    def fields(self) -> dict[str, list[FieldValues]]:
        """Values of the indexed fields, see `aladin_index.items.field_tables`."""
        return self._database.run(describe_fields)

    def unknown_fields(self, names: Collection[str]) -> set[str]:
        """Return the fields among `names` that have no index for filters."""
        return self._database.run(partial(unknown_fields, names=names))

    def select(self, filter: Filter) -> Selection:
        """Return the rows that pass a filter."""
        selection = self._selections.get(filter)
        if selection is not None:
            return selection
        # Filters differ between requests, their tests less so.
        tests = set(leaves(filter))
        known = {test: self._selections.get(test) for test in tests}
        masks = {test: found.mask for test, found in known.items() if found is not None}
        missing = tests - masks.keys()
        if missing:
            rows = range(self.count)
            found = self._database.run(lambda connection: masks_of(connection, missing, rows))
            for test, mask in found.items():
                self._selections.put(test, Selection(mask))
            masks |= found
        selection = Selection(combine(filter, masks))
        self._selections.put(filter, selection)
        return selection


def stored_item(line: tuple[Any, ...]) -> StoredItem:
    """Convert a row with `COLUMNS` to an item."""
    return StoredItem._make((*line[:8], json.loads(line[8]), *line[9:]))
