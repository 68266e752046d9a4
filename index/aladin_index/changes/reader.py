"""The changes of one collection at one moment, and their reader.

The reader sees the commits of all processes immediately.
"""

from __future__ import annotations

import sqlite3
import threading
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import chain
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from pyroaring import BitMap

from aladin_index.changes.database import AddedItems
from aladin_index.format.disk import identity_at
from aladin_index.items.filters import Filter
from aladin_index.items.selection import Selection, SelectionCache, bitmap_of
from aladin_index.items.store import ItemStore
from aladin_index.items.tables import StoredItem
from aladin_index.tokens.codec import TokenCodec
from aladin_index.tokens.store import TokenStore
from aladin_network.errors import IndexCorruptError

_CACHE_BYTES = 16 * 2**20


@dataclass(frozen=True, kw_only=True)
class CollectionChanges:
    """Changes of one collection at one moment; later changes are not visible in it.

    Rows below `base_count` are the generation's, those from there on were added, in this order.

    Attributes:
        embeddings: (added, d_match) float32 of all that was ever added.
        token_counts: (added,) int64, number of tokens of each.
        removed: Rows of either kind that are no longer found, int64.
    """

    added: AddedItems
    base_count: int
    embeddings: NDArray[np.float32]
    token_counts: NDArray[np.int64]
    removed: NDArray[np.int64]
    sequence: int

    @property
    def rows(self) -> int:
        """Number of rows, including removed ones; it is the number of the next row."""
        return self.base_count + len(self.embeddings)

    @property
    def count(self) -> int:
        """Number of items that were not removed."""
        return self.rows - len(self.removed)

    @property
    def is_empty(self) -> bool:
        """Whether nothing was ever added or removed."""
        return len(self.embeddings) == len(self.removed) == 0

    @cached_property
    def live(self) -> Selection | None:
        """Rows that were not removed, or None if none was removed."""
        if len(self.removed) == 0:
            return None
        return Selection(BitMap(range(self.rows)) - self.gone, self.rows)

    @cached_property
    def gone(self) -> BitMap:
        """The rows of `removed`."""
        return bitmap_of(self.removed)

    def is_live(self, row: int) -> bool:
        """Whether a search may find this row."""
        return row < self.rows and (self.live is None or row in self.live.bitmap)

    def split(self, selection: Selection | None) -> tuple[Selection | None, Selection | None]:
        """Divide a selection of live rows.

        What it selects of the generation's rows, and of the added ones counted from 0; None where
        that is all of them.
        """
        if selection is None or selection is self.live:
            return self._live_parts
        return selection.split(self.base_count)

    @cached_property
    def _live_parts(self) -> tuple[Selection | None, Selection | None]:
        if self.live is None:
            return None, None
        of_base, of_added = self.live.split(self.base_count)
        return (
            None if of_base.count == self.base_count else of_base,
            None if of_added.count == len(self.embeddings) else of_added,
        )

    def select(self, passing: Selection, filter: Filter) -> Selection:
        """Return the live rows that pass a filter."""
        selection = self._selections.get(filter)
        if selection is None:
            bitmap = passing.bitmap - self.gone
            if len(self.embeddings):
                bitmap |= self.added.passing(filter, len(self.embeddings)) - self.gone
            selection = Selection(bitmap, self.rows)
            self._selections.put(filter, selection)
        return selection

    @cached_property
    def _selections(self) -> SelectionCache[Filter]:
        return SelectionCache(_CACHE_BYTES)

    def embeddings_of(self, rows: NDArray[np.int64]) -> NDArray[np.float32]:
        """Return the embeddings of added rows, (rows, d_match)."""
        return self.embeddings[rows - self.base_count]

    def lengths(self, rows: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return the number of tokens of added rows."""
        return self.token_counts[rows - self.base_count]

    def tokens(self, rows: NDArray[np.int64]) -> TokenStore:
        """Read the tokens of added rows, numbered 0, 1, 2 ... in the result."""
        return self.added.tokens(rows, self.lengths(rows))

    def by_rows(self, rows: Sequence[int]) -> list[StoredItem]:
        """Read added items, in any order."""
        return self.added.items_by_rows(rows)

    def by_id(self, item_id: str) -> StoredItem | None:
        """Read the live added item with this id, or None if there is none."""
        found = self.added.items_by_id(item_id)
        return next((item for item in found if self.is_live(item.row)), None)

    def ids(self) -> list[tuple[str, int]]:
        """Read the ids and rows of all items ever added."""
        return [(item_id, row) for item_id, row in self.added.ids() if row < self.rows]


class ChangesReader:
    """Reads the changes of one collection of a generation; thread-safe.

    Embeddings are kept in memory and only new ones are read; tokens and items are read when a
    search asks for them.
    """

    def __init__(self, path: Path, base_count: int, dim: int, codec: TokenCodec) -> None:
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
        """
        with self._lock:
            opened = self._added.identity
            if self._successor is None and opened is not None and opened != identity_at(self._path):
                rest = (self._base_count, self._dim, self._codec)
                self._successor = ChangesReader(self._path, *rest)
            successor = self._successor
            if successor is None:
                # Before the first change this look at the disk is all there is to do.
                if self._follower is None and not self._path.exists():
                    return None
                try:
                    if self._added.fixed is not None and self._added.reopen_changed():
                        self._follower = None
                    if self._follower is None:
                        self._follower, self._data_version = self._added.connect(), -1
                    version = self._follower.execute("PRAGMA data_version").fetchone()[0]
                    if self._snapshot is None or version != self._data_version:
                        follower = self._follower
                        self._snapshot = self._read_new()
                        self._data_version = version if self._follower is follower else -1
                    return self._snapshot
                except sqlite3.Error as error:
                    raise self._added.damaged(error) from error
        return successor.snapshot()

    def _read_new(self) -> CollectionChanges:
        """Take in what was added and removed since the last call."""
        added = self._base_count + self._embeddings.count
        while True:
            if self._follower is None:
                self._follower = self._added.connect()
            try:
                encodings, removed = self._read(self._follower, added)
            except sqlite3.Error:
                if not self._added.was_changed():
                    raise
            else:
                if not self._added.was_changed():
                    break
            self._added.reopen_changed()  # what was read is partly of before
            self._follower = None
        if self._snapshot is not None and not (encodings or removed):
            return self._snapshot
        return self._follow(added, encodings, removed)

    def _read(
        self, connection: sqlite3.Connection, added: int
    ) -> tuple[list[tuple[int, bytes, int]], list[tuple[int, int]]]:
        """Read the rows from `added` on, and what was removed since the last call."""
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
        return encodings, removed

    def _follow(
        self, added: int, encodings: list[tuple[int, bytes, int]], removed: list[tuple[int, int]]
    ) -> CollectionChanges:
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


class LiveItems(NamedTuple):
    """Reads ids, texts and metadata of the items of a generation with its changes.

    Attributes:
        changes: Changes since the generation was built.
    """

    base: ItemStore
    changes: CollectionChanges

    def by_rows(self, rows: Sequence[int]) -> list[StoredItem]:
        """Return the items at some rows, in the requested order."""
        built = [row for row in rows if row < self.changes.base_count]
        added = [row for row in rows if row >= self.changes.base_count]
        found = {item.row: item for item in self.base.by_rows(built)}
        found.update((item.row, item) for item in self.changes.by_rows(added))
        return [found[row] for row in rows]

    def by_id(self, item_id: str) -> StoredItem | None:
        """Return the live item with this id, or None if there is none."""
        item = self.base.by_id(item_id)
        if item is not None and self.changes.is_live(item.row):
            return item
        return self.changes.by_id(item_id)

    def by_ids(self, ids: Sequence[str]) -> list[StoredItem | None]:
        """Return the result of `by_id` for each id."""
        return [self.by_id(item_id) for item_id in ids]

    def ids(self) -> Iterator[tuple[str, int]]:
        """Yield the id and the row of every live item; those of the generation come first."""
        for item_id, row in chain(self.base.ids(), self.changes.ids()):
            if self.changes.is_live(row):
                yield item_id, row
