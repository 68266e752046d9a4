"""Reads the changes of one collection; sees the commits of all processes immediately."""

from __future__ import annotations

import sqlite3
import threading
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from aladin_index.changes.snapshot import AddedItems, CollectionChanges
from aladin_index.format.disk import identity_at
from aladin_index.tokens.codec import TokenCodec
from aladin_network.errors import IndexCorruptError


class ChangesReader:
    """Reads the changes of one collection of a generation; thread-safe.

    Embeddings are kept in memory and only new ones are read; tokens and items are read when a
    search asks for them.
    """

    def __init__(self, path: Path, base_count: int, dim: int, codec: TokenCodec) -> None:
        """Store the arguments; nothing is opened, since most generations have no changes.

        Args:
            path: Path of the database; it need not exist.
            base_count: Number of items of the collection in the generation.
            dim: Size of an embedding.
            codec: Codec of the collection's tokens.
        """
        self._path = path
        self._base_count = base_count
        self._dim = dim
        self._codec = codec
        self._lock = threading.Lock()
        self._follower: sqlite3.Connection | None = None
        self._added = AddedItems(path, base_count, codec)
        self._successor: ChangesReader | None = None
        self._data_version = -1
        self._snapshot: CollectionChanges | None = None
        self._embeddings = _Rows(np.dtype(np.float32), (dim,))
        self._token_counts = _Rows(np.dtype(np.int64), ())
        self._removed = _Rows(np.dtype(np.int64), ())
        self._sequence = 0

    def close(self) -> None:
        """Close the connections of all threads."""
        with self._lock:
            if self._successor is not None:
                self._successor.close()
            self._added.close()
            self._follower = None

    def snapshot(self) -> CollectionChanges | None:
        """Return all committed changes, or None if there never was one.

        Costs microseconds where nothing is new. Where another file was put in the place of the
        database, it is read from the start; what was read before stays with those who have it.

        Raises:
            IndexCorruptError: If the database is damaged.
        """
        with self._lock:
            opened = self._added.identity
            if self._successor is None and opened is not None and opened != identity_at(self._path):
                rest = (self._base_count, self._dim, self._codec)
                self._successor = ChangesReader(self._path, *rest)
            successor = self._successor
            if successor is None:
                try:
                    if self._follower is None:
                        # Before the first change this look at the disk is all there is to do.
                        if not self._path.exists():
                            return None
                        self._follower = self._added.connect()
                    version = self._follower.execute("PRAGMA data_version").fetchone()[0]
                    if self._snapshot is None or version != self._data_version:
                        self._snapshot = self._follow(self._follower)
                        self._data_version = version
                except sqlite3.Error as error:
                    raise self._added.damaged(error) from error
                return self._snapshot
        return successor.snapshot()

    def _follow(self, connection: sqlite3.Connection) -> CollectionChanges:
        """Read what was added and removed since the last call."""
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
            added=self._added,
            base_count=self._base_count,
            embeddings=self._embeddings.filled,
            token_counts=self._token_counts.filled,
            removed=self._removed.filled,
            sequence=self._sequence,
        )


class _Rows:
    """Array that grows; slices taken earlier do not change."""

    def __init__(self, dtype: np.dtype[Any], row_shape: tuple[int, ...]) -> None:
        self.row_shape = row_shape
        self.count = 0
        self._values = np.empty((0, *row_shape), dtype=dtype)

    @property
    def filled(self) -> NDArray[Any]:
        """Rows appended so far."""
        return self._values[: self.count]

    def append(self, rows: NDArray[Any]) -> None:
        """Add rows; the capacity is doubled whenever it is exhausted."""
        end = self.count + len(rows)
        if end > len(self._values):
            room = np.empty((max(end, 2 * len(self._values)), *self.row_shape), self._values.dtype)
            room[: self.count] = self.filled
            self._values = room
        self._values[self.count : end] = rows
        self.count = end
