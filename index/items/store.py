"""Reads the items of one side of a generation, in one SQLite file: ids, texts, metadata."""

from __future__ import annotations

import sqlite3
import threading
from collections.abc import Callable, Collection, Sequence
from pathlib import Path
from typing import Any, TypeVar

from aladin.errors import IndexCorruptError
from index.items.filter_tree import Filter, leaves
from index.items.filtered_rows import combine, masks_of
from index.items.selection_cache import SelectionCache
from index.items.tables import StoredItem, columns_of, count_fields, stored_item, unknown_fields
from index.selection import Selection

# SQLite's default limit of variables in one statement is 999 in older builds.
_BATCH = 500
_CACHE_BYTES = 64 * 2**20

T = TypeVar("T")


class ItemStore:
    """Reads the items of one side; safe to use from any number of threads."""

    def __init__(self, path: Path) -> None:
        """Open the file that `index.items.tables.write_items` wrote; it is never written again.

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
        return self._guarded(lambda connection: unknown_fields(connection, names))

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
        return self._guarded(lambda connection: connection.execute(statement, values).fetchall())

    def _guarded(self, read: Callable[[sqlite3.Connection], T]) -> T:
        try:
            return read(self._connection())
        except sqlite3.Error as error:
            raise IndexCorruptError(self._path, f"cannot be read ({error})") from error

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
