"""What the user said of each item, in one SQLite file a side: ids, texts, metadata."""

from __future__ import annotations

import json
import sqlite3
import threading
from collections.abc import Iterable, Sequence
from functools import reduce
from pathlib import Path
from typing import Any, NamedTuple, cast

import numpy as np
from numpy.typing import NDArray

from aladin.errors import IndexCorruptError
from index.filters import Condition, scalar

# Rows are numbered as in the ANN, from 0. `fields` holds what filters look at, one line for each
# scalar, so that a filter is a look-up in an index of the database and no scan of JSON.
_SCHEMA = """
CREATE TABLE items (
    row INTEGER PRIMARY KEY,
    id TEXT NOT NULL UNIQUE,
    uri TEXT, path TEXT, text TEXT, image_id TEXT,
    width_px INTEGER, height_px INTEGER,
    metadata TEXT NOT NULL
);
CREATE TABLE fields (field TEXT NOT NULL, kind TEXT NOT NULL, value NOT NULL, row INTEGER NOT NULL);
"""
_COLUMNS = "row, id, uri, path, text, image_id, width_px, height_px, metadata"
_COMPARISONS = {"gt": ">", "gte": ">=", "lt": "<", "lte": "<="}
# SQLite's default limit of variables in one statement is 999 in older builds.
_BATCH = 500


class StoredItem(NamedTuple):
    """An item of an index.

    Attributes:
        row: in the ANN, the embeddings and the tokens.
        id: the user's own.
        uri: of an image, as the user wrote it; None for a text.
        path: absolute path of an image's file, not to be shown; None for a text.
        text: the text, or an image's first caption, or None.
        image_id: of a text, the image that it describes, if the build was told.
        width_px: of an image, upright.
        height_px: of an image, upright.
        metadata: the user's own.
    """

    row: int
    id: str
    uri: str | None
    path: str | None
    text: str | None
    image_id: str | None
    width_px: int | None
    height_px: int | None
    metadata: dict[str, Any]

    @property
    def size_px(self) -> tuple[int, int] | None:
        """Width and height of an image; None for a text."""
        if self.width_px is None or self.height_px is None:
            return None
        return self.width_px, self.height_px


def write_items(path: Path, items: Iterable[StoredItem]) -> None:
    """Write the items of one side.

    Args:
        path: of the new file.
        items: in the order of their rows.

    Raises:
        sqlite3.Error: the disk is full, or cannot be written.
    """
    connection = sqlite3.connect(path)
    try:
        # No journal: a build that is cut short writes the whole file again.
        connection.execute("PRAGMA journal_mode = OFF")
        connection.execute("PRAGMA synchronous = OFF")
        connection.executescript(_SCHEMA)
        for item in items:
            values = (*item[:-1], json.dumps(item.metadata, ensure_ascii=False))
            connection.execute(f"INSERT INTO items ({_COLUMNS}) VALUES (?,?,?,?,?,?,?,?,?)", values)
            connection.executemany("INSERT INTO fields VALUES (?,?,?,?)", _field_lines(item))
        connection.execute("CREATE INDEX by_field ON fields (field, kind, value, row)")
        connection.commit()
    finally:
        connection.close()


class ItemStore:
    """Reads the items of one side; safe to use from any number of threads."""

    def __init__(self, path: Path) -> None:
        """Open the file that `write_items` wrote; it is never written again.

        Raises:
            IndexCorruptError: not such a file.
        """
        self._path = path
        self._uri = f"{path.absolute().as_uri()}?mode=ro&immutable=1"
        self._local = threading.local()
        self._lock = threading.Lock()
        self._connections: list[sqlite3.Connection] = []
        self.count = int(self._read("SELECT COUNT(*) FROM items")[0][0])

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
            statement = f"SELECT {_COLUMNS} FROM items WHERE row IN ({marks})"
            for line in self._read(statement, tuple(int(row) for row in batch)):
                found[line[0]] = _item(line)
        return [found[row] for row in rows]

    def by_id(self, item_id: str) -> StoredItem | None:
        """Return the item with this id, or None where there is none."""
        try:
            lines = self._read(f"SELECT {_COLUMNS} FROM items WHERE id = ?", (item_id,))
        except UnicodeEncodeError:  # a lone surrogate is part of no stored id
            return None
        return _item(lines[0]) if lines else None

    def rows_by_id(self) -> dict[str, int]:
        """Return the row of every id."""
        return dict(cast(list[tuple[str, int]], self._read("SELECT id, row FROM items")))

    def matching_rows(self, conditions: Sequence[Condition]) -> NDArray[np.int64]:
        """Return, in ascending order, the rows that pass all conditions; at least one is given."""
        passed = (self._passing(condition) for condition in conditions)
        return reduce(lambda left, right: np.intersect1d(left, right, assume_unique=True), passed)

    def _passing(self, condition: Condition) -> NDArray[np.int64]:
        if condition.operator in _COMPARISONS:
            rows = self._field_rows(condition, _COMPARISONS[condition.operator])
            return np.unique(rows)
        equal = np.unique(self._field_rows(condition, "="))
        if condition.operator == "in":
            return equal
        return np.setdiff1d(np.arange(self.count, dtype=np.int64), equal, assume_unique=True)

    def _field_rows(self, condition: Condition, comparison: str) -> NDArray[np.int64]:
        statement = f"SELECT row FROM fields WHERE field = ? AND kind = ? AND value {comparison} ?"
        rows: list[int] = []
        for operand in condition.operands:
            rows += [line[0] for line in self._read(statement, (condition.field, *operand))]
        return np.array(rows, dtype=np.int64)

    def _read(self, statement: str, values: tuple[Any, ...] = ()) -> list[Any]:
        try:
            return self._connection().execute(statement, values).fetchall()
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


def _field_lines(item: StoredItem) -> Iterable[tuple[str, str, object, int]]:
    for field, value in item.metadata.items():
        values: list[object] = cast(list[object], value) if isinstance(value, list) else [value]
        for each in values:
            stored = scalar(each)
            if stored is not None:
                yield field, stored.kind, stored.value, item.row


def _item(line: tuple[Any, ...]) -> StoredItem:
    return StoredItem(*line[:-1], metadata=json.loads(line[-1]))
