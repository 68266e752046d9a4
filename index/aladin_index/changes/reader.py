"""Follows the changes of one side: sees at once what any process has committed."""

from __future__ import annotations

import sqlite3
import threading
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from aladin_index.changes.database import TOKEN_COLUMNS, open_to_read
from aladin_index.changes.snapshot import CollectionChanges
from aladin_index.format.locks import FileIdentity, identity_at
from aladin_index.items.filters import Filter
from aladin_index.items.store import rows_passing
from aladin_index.items.tables import StoredItem, columns_of, stored_item
from aladin_index.tokens.codec import PackedTokens, TokenCodec
from aladin_index.tokens.store import TokenStore
from aladin_network.errors import IndexCorruptError

T = TypeVar("T")
# SQLite's default limit of variables in one statement is 999 in older builds.
_BATCH = 500


class ChangesReader:
    """Reads the changes of one side of a generation; safe to use from any number of threads.

    Embeddings are kept in memory and only new ones are read; tokens and items are read when a
    search asks for them.
    """

    def __init__(self, path: Path, base_count: int, dim: int, codec: TokenCodec) -> None:
        """Open nothing yet: most generations have no changes.

        Args:
            path: of the database; it need not be there.
            base_count: number of items of the generation's side.
            dim: size of an embedding.
            codec: of the side's tokens.
        """
        self._path = path
        self._base_count = base_count
        self._dim = dim
        self._codec = codec
        self._lock = threading.Lock()
        self._follower: sqlite3.Connection | None = None
        self._identity: FileIdentity | None = None  # of what it has open
        self._successor: ChangesReader | None = None
        self._data_version = -1
        self._snapshot: CollectionChanges | None = None
        self._embeddings = _Rows(np.dtype(np.float32), (dim,))
        self._token_counts = _Rows(np.dtype(np.int64), ())
        self._removed = _Rows(np.dtype(np.int64), ())
        self._sequence = 0
        self._local = threading.local()
        self._connections: list[sqlite3.Connection] = []

    def close(self) -> None:
        """Close the connections of all threads."""
        with self._lock:
            if self._successor is not None:
                self._successor.close()
            for connection in self._connections:
                connection.close()
            self._connections.clear()
            self._follower = None
            self._local = threading.local()

    def snapshot(self) -> CollectionChanges | None:
        """Return all changes that are committed by now; None where there never was one.

        Costs microseconds where nothing is new. Where another file was put in the place of the
        database, it is read from the start; what was read before stays with those who have it.

        Raises:
            IndexCorruptError: the database is damaged.
        """
        with self._lock:
            if self._is_replaced and self._successor is None:
                rest = (self._base_count, self._dim, self._codec)
                self._successor = ChangesReader(self._path, *rest)
            successor = self._successor
        return self._snapshot_here() if successor is None else successor.snapshot()

    @property
    def _is_replaced(self) -> bool:
        """Whether what is open is not what is at the path now."""
        return self._identity is not None and self._identity != identity_at(self._path)

    def _snapshot_here(self) -> CollectionChanges | None:
        """Return the changes of the database that is open, or is to be opened now."""
        with self._lock:
            try:
                if self._follower is None:
                    # Before the first change this look at the disk is all that there is to do.
                    if not self._path.exists():
                        return None
                    self._follower = self._connect()
                version = self._follower.execute("PRAGMA data_version").fetchone()[0]
                if self._snapshot is None or version != self._data_version:
                    self._snapshot = self._follow(self._follower)
                    self._data_version = version
            except sqlite3.Error as error:
                raise self._damaged(error) from error
            return self._snapshot

    def tokens(self, rows: NDArray[np.int64]) -> TokenStore:
        """Read the tokens of some rows, each once."""
        columns = ", ".join(f'"{name}"' for name in TOKEN_COLUMNS)
        lines = self._by_rows(f"SELECT row, {columns} FROM encodings", rows.tolist())
        by_row = {line[0]: line[1:] for line in lines}
        arrays = [
            np.frombuffer(
                b"".join(by_row[row][place] for row in rows.tolist()), dtype=array.dtype
            ).reshape(-1, *array.row_shape)
            for place, array in enumerate(self._codec.arrays)
        ]
        lengths = self._token_counts.filled[rows - self._base_count]
        return TokenStore.from_arrays(self._codec, PackedTokens(*arrays), lengths)

    def items_by_rows(self, rows: Sequence[int]) -> list[StoredItem]:
        """Read the items of some rows, in any order."""
        lines = self._by_rows(f"SELECT {self._guarded(columns_of)} FROM items", rows)
        return [stored_item(line) for line in lines]

    def items_by_id(self, item_id: str) -> list[StoredItem]:
        """Read all items that ever had an id."""
        try:
            columns = self._guarded(columns_of)
            lines = self._read(f"SELECT {columns} FROM items WHERE id = ?", (item_id,))
        except UnicodeEncodeError:  # a lone surrogate is part of no stored id
            return []
        return [stored_item(line) for line in lines]

    def ids(self) -> list[tuple[str, int]]:
        """Read the ids and rows of all that was ever added."""
        return self._read("SELECT id, row FROM items")

    def passing(self, filter: Filter, count: int) -> NDArray[np.bool_]:
        """Find the added rows that pass a filter.

        Args:
            filter: to pass.
            count: of the rows that were added first; the others are left aside.

        Returns:
            (count,), True at those that pass.
        """

        def find(connection: sqlite3.Connection) -> NDArray[np.int64]:
            connection.execute("BEGIN")  # no row comes between the two statements
            try:
                last = connection.execute("SELECT MAX(row) FROM items").fetchone()[0]
                end = self._base_count if last is None else last + 1
                return rows_passing(connection, filter, range(self._base_count, end))
            finally:
                connection.execute("COMMIT")

        rows = self._guarded(find) - self._base_count
        mask = np.zeros(count, dtype=np.bool_)
        mask[rows[rows < count]] = True
        return mask

    def _follow(self, connection: sqlite3.Connection) -> CollectionChanges:
        """Read what was added and removed since the last time."""
        added = self._base_count + self._embeddings.count
        connection.execute("BEGIN")  # both statements see the same calls
        try:
            encodings = connection.execute(
                "SELECT row, embedding, tokens FROM encodings WHERE row >= ? ORDER BY row", (added,)
            ).fetchall()
            removed = connection.execute(
                "SELECT sequence, row FROM removed WHERE sequence > ? ORDER BY sequence",
                (self._sequence,),
            ).fetchall()
        finally:
            connection.execute("COMMIT")
        if [line[0] for line in encodings] != list(range(added, added + len(encodings))):
            raise IndexCorruptError(self._path, f"expected rows from {added} on without a gap")
        if encodings:
            joined = b"".join(line[1] for line in encodings)
            dim = self._embeddings.row_shape[0]
            if len(joined) != 4 * dim * len(encodings):
                raise IndexCorruptError(self._path, f"expected embeddings of {dim} float32 values")
            self._embeddings.append(np.frombuffer(joined, dtype=np.float32).reshape(-1, dim))
            self._token_counts.append(np.array([line[2] for line in encodings], dtype=np.int64))
        gone = [line[1] for line in removed]
        if gone and not (min(gone) >= 0 and max(gone) < added + len(encodings)):
            last = added + len(encodings) - 1
            raise IndexCorruptError(self._path, f"expected removed rows from 0 to {last}")
        if removed:
            self._removed.append(np.array(gone, dtype=np.int64))
            self._sequence = removed[-1][0]
        return CollectionChanges(
            reader=self,
            base_count=self._base_count,
            embeddings=self._embeddings.filled,
            token_counts=self._token_counts.filled,
            removed=self._removed.filled,
            sequence=self._sequence,
        )

    def _by_rows(self, select: str, rows: Sequence[int]) -> list[Any]:
        lines: list[Any] = []
        for start in range(0, len(rows), _BATCH):
            batch = rows[start : start + _BATCH]
            marks = ",".join("?" * len(batch))
            lines += self._read(f"{select} WHERE row IN ({marks})", tuple(batch))
        return lines

    def _read(self, statement: str, values: tuple[Any, ...] = ()) -> list[Any]:
        return self._guarded(lambda connection: connection.execute(statement, values).fetchall())

    def _guarded(self, read: Callable[[sqlite3.Connection], T]) -> T:
        try:
            connection: sqlite3.Connection | None = getattr(self._local, "connection", None)
            if connection is None:
                with self._lock:
                    connection = self._local.connection = self._connect()
            return read(connection)
        except sqlite3.Error as error:
            raise self._damaged(error) from error

    def _connect(self) -> sqlite3.Connection:
        if self._identity is None:
            self._identity = identity_at(self._path)
        connection = open_to_read(self._path)
        self._connections.append(connection)
        if self._is_replaced:
            raise IndexCorruptError(self._path, "was replaced while it was read")
        return connection

    def _damaged(self, error: sqlite3.Error) -> IndexCorruptError:
        return IndexCorruptError(self._path, f"cannot be read ({error})")


class _Rows:
    """An array that grows; what was taken of it stays as it is."""

    def __init__(self, dtype: np.dtype[Any], row_shape: tuple[int, ...]) -> None:
        self.row_shape = row_shape
        self.count = 0
        self._values = np.empty((0, *row_shape), dtype=dtype)

    @property
    def filled(self) -> NDArray[Any]:
        """The rows up to now."""
        return self._values[: self.count]

    def append(self, rows: NDArray[Any]) -> None:
        """Add rows; twice the room is taken whenever it is full."""
        end = self.count + len(rows)
        if end > len(self._values):
            room = np.empty((max(end, 2 * len(self._values)), *self.row_shape), self._values.dtype)
            room[: self.count] = self.filled
            self._values = room
        self._values[self.count : end] = rows
        self.count = end
