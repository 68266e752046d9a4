"""The items of a collection in SQLite: ids, texts and metadata, and the evaluation of filters."""

from __future__ import annotations

import json
import sqlite3
import threading
import weakref
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Sequence
from functools import cached_property, partial
from pathlib import Path
from typing import Any, TypeVar

from pyroaring import BitMap

from aladin_index.items.column_tables import columns_bytes, read_columns
from aladin_index.items.columns import FieldColumns, combine
from aladin_index.items.field_tables import (
    FieldLine,
    FieldValues,
    ValuesEnd,
    count_values,
    describe_fields,
    field_lines,
)
from aladin_index.items.filters import Filter, Kind, Test, leaves
from aladin_index.items.look_ups import VALUES_A_STATEMENT, look_up
from aladin_index.items.selection import Selection, SelectionCache
from aladin_index.items.tables import COLUMNS, StoredItem, count_fields, unknown_fields
from aladin_index.items.words import WordIndex
from aladin_network.errors import IndexCorruptError

_IDS_AT_A_TIME = 10_000
_CACHE_BYTES = 64 * 2**20
# Columns of fields that filters have named stay in memory up to this size; beyond it, tests of
# other fields are looked up in the database.
_COLUMNS_BYTES = 2**29

T = TypeVar("T")


# All items in one line: SQLite releases the GIL for each line that it returns, and two threads that
# look items up wait for it longer than the look-up takes.
_TOGETHER = """
SELECT json_group_array(json_array(
    row, id, uri, path, text, image_id, width_px, height_px, metadata, "offset", length,
    CASE WHEN boxes IS NULL THEN NULL ELSE hex(boxes) END, file_state,
    fingerprint
)) FROM"""
_METADATA, _BOXES = map(StoredItem._fields.index, ("metadata", "boxes"))
# Reads the text of `json.dumps`, in a third of the time of `json.loads`, which permits blanks
# before and after it.
_decode = json.JSONDecoder().raw_decode


class ThreadConnections:
    """Connections to a database of items for reading, one per thread; thread-safe.

    A scan by one thread does not delay the others. When a thread ends, its connection is closed.
    """

    def __init__(self, path: Path, connect: Callable[[], sqlite3.Connection]) -> None:
        self._path = path
        self._connect = connect
        self._lock = threading.Lock()
        self._local = threading.local()
        self._opened: set[sqlite3.Connection] = set()

    def open(self) -> sqlite3.Connection:
        """Open a connection, which `close` closes."""
        with self._lock:
            connection = self._connect()
            self._opened.add(connection)
            return connection

    def close(self) -> None:
        """Close the connections of all threads."""
        with self._lock:
            for connection in list(self._opened):
                _close(connection, self._opened)
            self._local = threading.local()

    def run(self, read: Callable[[sqlite3.Connection], T]) -> T:
        try:
            return read(self._connection())
        except sqlite3.Error as error:
            raise self.damaged(error) from error

    def lines(self, statement: str, values: tuple[Any, ...] = ()) -> list[Any]:
        try:
            return self._connection().execute(statement, values).fetchall()
        except sqlite3.Error as error:
            raise self.damaged(error) from error

    def damaged(self, error: sqlite3.Error) -> IndexCorruptError:
        """Return the error that reports an unreadable database."""
        return IndexCorruptError(self._path, f"cannot be read ({error})")

    def _connection(self) -> sqlite3.Connection:
        own: _OwnConnection | None = getattr(self._local, "own", None)
        if own is None:
            own = self._local.own = _OwnConnection(self.open())
            # Programs search from new threads again and again; each connection is an open file.
            weakref.finalize(own, _close, own.connection, self._opened)
        return own.connection


class _OwnConnection:
    """Connection of one thread, held by that thread alone."""

    def __init__(self, connection: sqlite3.Connection) -> None:
        self.connection = connection


def _close(connection: sqlite3.Connection, opened: set[sqlite3.Connection]) -> None:
    # Without the lock, which the thread that drops a connection may hold.
    opened.discard(connection)
    connection.close()


class ItemStore:
    """Reads the items of one collection; thread-safe."""

    def __init__(self, path: Path) -> None:
        """Open a file of `aladin_index.items.tables.write_items`, which never changes."""
        uri = f"{path.absolute().as_uri()}?mode=ro&immutable=1"
        self._database = ThreadConnections(
            path, lambda: sqlite3.connect(uri, uri=True, check_same_thread=False)
        )
        # The rows that pass a filter never change, because the file does not.
        self._selections: SelectionCache[Filter] = SelectionCache(_CACHE_BYTES)
        self._field_columns: dict[str, FieldColumns] = {}
        self._columns_bytes = 0
        self._columns_lock = threading.Lock()
        # Counting the rows would read all of them. Row numbers have no gaps.
        last = self._database.lines("SELECT MAX(row) FROM items")[0][0]
        self.count = 0 if last is None else int(last) + 1
        self.words = WordIndex(self.by_rows)

    def close(self) -> None:
        """Close the connections of all threads."""
        self._database.close()

    def by_rows(self, rows: Sequence[int]) -> list[StoredItem]:
        """Return the items at some rows, in the given order."""
        found: dict[int, StoredItem] = {}
        for start in range(0, len(rows), VALUES_A_STATEMENT):
            batch = rows[start : start + VALUES_A_STATEMENT]
            marks = ",".join("?" * len(batch))
            statement = f"{_TOGETHER} (SELECT {COLUMNS} FROM items WHERE row IN ({marks}))"
            ((lines,),) = self._database.lines(statement, tuple(int(row) for row in batch))
            for line in json.loads(lines):
                if line[_BOXES] is not None:
                    line[_BOXES] = bytes.fromhex(line[_BOXES])
                line[_METADATA] = _decode(line[_METADATA])[0]
                found[line[0]] = StoredItem._make(line)
        return [found[row] for row in rows]

    def by_id(self, item_id: str) -> StoredItem | None:
        """Return the item with this id, or None if there is none."""
        try:
            lines = self._database.lines(f"SELECT {COLUMNS} FROM items WHERE id = ?", (item_id,))
        except UnicodeEncodeError:  # a lone surrogate is part of no stored id
            return None
        return stored_item(lines[0]) if lines else None

    def by_ids(self, ids: Sequence[str]) -> list[StoredItem | None]:
        """Return the result of `by_id` for each id."""
        return [self.by_id(item_id) for item_id in ids]

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

    def count_values(
        self, name: str, kind: Kind, most: int, end: ValuesEnd
    ) -> Counter[int | float | str]:
        """Count values of a field, see `aladin_index.items.field_tables`."""
        return self._database.run(partial(count_values, name=name, kind=kind, most=most, end=end))

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
        found = {test: self._passing(test) for test in set(leaves(filter))}
        selection = Selection(combine(filter, found, range(self.count)), self.count)
        self._selections.put(filter, selection)
        return selection

    def count_among(self, tests: Sequence[Test], rows: BitMap) -> list[int]:
        """Count for each test of one field which of some rows pass it; nothing is cached."""
        columns = self._columns_of(tests[0].field)
        passing = self._passing if columns is None else columns.passing
        return [passing(test).intersection_cardinality(rows) for test in tests]

    def _passing(self, test: Test) -> BitMap:
        selection = self._selections.get(test)
        if selection is None:
            columns = self._columns_of(test.field)
            if columns is None:
                read = partial(look_up, test=test, rows=range(self.count))
                selection = Selection.of_mask(self._database.run(read))
            else:
                selection = Selection(columns.passing(test), self.count)
            self._selections.put(test, selection)
        return selection.bitmap

    def _columns_of(self, field: str) -> FieldColumns | None:
        """Return the columns of a field, or None if tests of it have to be looked up."""
        columns = self._field_columns.get(field)
        if columns is not None:
            return columns
        with self._columns_lock:
            size = self._database.run(partial(columns_bytes, name=field))
            if size == 0 or self._columns_bytes + size > _COLUMNS_BYTES:
                return self._field_columns.get(field)
            columns = self._database.run(partial(read_columns, name=field, end=self.count))
            self._columns_bytes += size
            self._field_columns[field] = columns
            return columns


def stored_item(line: tuple[Any, ...]) -> StoredItem:
    """Convert a row with `COLUMNS` to an item."""
    return StoredItem._make((*line[:8], _decode(line[8])[0], *line[9:]))
