"""Additions to and deletions from a collection at one moment."""

from __future__ import annotations

import sqlite3
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from aladin_index.changes.database import TOKEN_COLUMNS, open_to_read
from aladin_index.format.disk import FileIdentity, identity_at
from aladin_index.items.field_tables import FieldLine, FieldValues, describe_fields, field_lines
from aladin_index.items.filters import Filter
from aladin_index.items.selection import Selection
from aladin_index.items.store import rows_passing, stored_item
from aladin_index.items.tables import StoredItem, columns_of
from aladin_index.tokens.codec import PackedTokens, TokenCodec
from aladin_index.tokens.store import TokenStore
from aladin_network.errors import IndexCorruptError

T = TypeVar("T")
# The default limit of variables per statement is 999 in older builds of SQLite.
_BATCH = 500


class AddedItems:
    """Reads items and tokens from a database of changes; thread-safe.

    Attributes:
        path: The database.
        identity: Identity of the open file, or None if none was opened yet.
    """

    def __init__(self, path: Path, base_count: int, codec: TokenCodec) -> None:
        """Store the arguments; nothing is opened yet.

        Args:
            path: The database; it need not exist yet.
            base_count: Number of items in the generation, which is the first added row.
            codec: Codec of the stored tokens.
        """
        self.path = path
        self._base_count = base_count
        self._codec = codec
        self._lock = threading.Lock()
        self.identity: FileIdentity | None = None
        self._local = threading.local()
        self._connections: list[sqlite3.Connection] = []

    def connect(self) -> sqlite3.Connection:
        """Open a connection, which `close` closes.

        Raises:
            IndexCorruptError: If the file is replaced during the call.
            sqlite3.Error: If the file cannot be opened.
        """
        with self._lock:
            if self.identity is None:
                self.identity = identity_at(self.path)
            connection = open_to_read(self.path)
            self._connections.append(connection)
            if self.identity is not None and self.identity != identity_at(self.path):
                raise IndexCorruptError(self.path, "was replaced while it was read")
            return connection

    def close(self) -> None:
        """Close the connections of all threads."""
        with self._lock:
            for connection in self._connections:
                connection.close()
            self._connections.clear()
            self._local = threading.local()

    def tokens(self, rows: NDArray[np.int64], lengths: NDArray[np.int64]) -> TokenStore:
        """Read the tokens of some distinct rows.

        Args:
            rows: Rows of added items.
            lengths: (rows,) Number of tokens of each.
        """
        columns = ", ".join(f'"{name}"' for name in TOKEN_COLUMNS)
        lines = self._by_rows(f"SELECT row, {columns} FROM encodings", rows.tolist())
        by_row = {line[0]: line[1:] for line in lines}
        arrays = [
            np.frombuffer(
                b"".join(by_row[row][place] for row in rows.tolist()), dtype=array.dtype
            ).reshape(-1, *array.row_shape)
            for place, array in enumerate(self._codec.arrays)
        ]
        return TokenStore.from_arrays(self._codec, PackedTokens(*arrays), lengths)

    def items_by_rows(self, rows: Sequence[int]) -> list[StoredItem]:
        """Read the items of some rows, in any order."""
        lines = self._by_rows(f"SELECT {self._guarded(columns_of)} FROM items", rows)
        return [stored_item(line) for line in lines]

    def items_by_id(self, item_id: str) -> list[StoredItem]:
        """Read all items that ever had this id."""
        try:
            columns = self._guarded(columns_of)
            lines = self._read(f"SELECT {columns} FROM items WHERE id = ?", (item_id,))
        except UnicodeEncodeError:  # a lone surrogate is part of no stored id
            return []
        return [stored_item(line) for line in lines]

    def ids(self) -> list[tuple[str, int]]:
        """Read the ids and rows of all items ever added."""
        return self._read("SELECT id, row FROM items")

    def field_lines(
        self, name: str, after: FieldLine | None, *, descending: bool
    ) -> list[FieldLine]:
        """Read values of a field in their order, see `aladin_index.items.field_tables`."""
        return self._guarded(partial(field_lines, name=name, after=after, descending=descending))

    def describe_fields(self) -> dict[str, list[FieldValues]]:
        """Describe the indexed fields of all items ever added, like `ItemStore.fields`."""
        return self._guarded(describe_fields)

    def passing(self, filter: Filter, count: int) -> NDArray[np.bool_]:
        """Find the added rows that pass a filter.

        Args:
            filter: Filter to apply.
            count: Number of rows to consider, in the order in which they were added; later ones are
                ignored.

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
                connection = self._local.connection = self.connect()
            return read(connection)
        except sqlite3.Error as error:
            raise self.damaged(error) from error

    def damaged(self, error: sqlite3.Error) -> IndexCorruptError:
        """Return the error that reports an unreadable database."""
        return IndexCorruptError(self.path, f"cannot be read ({error})")


@dataclass(frozen=True, kw_only=True)
class CollectionChanges:
    """Changes of one collection at one moment; later changes are not visible in it.

    Rows below `base_count` are the generation's, those from there on were added, in this order.

    Attributes:
        added: Reads the tokens and items of added rows on request.
        base_count: Number of items of the generation.
        embeddings: (added, d_match) float32 of all that was ever added.
        token_counts: (added,) int64, number of tokens of each.
        removed: Rows of either kind that are no longer found, int64.
        sequence: Number of the last removal, for callers that request what came after it.
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
        mask = np.ones(self.rows, dtype=np.bool_)
        mask[self.removed] = False
        return Selection(mask)

    def is_live(self, row: int) -> bool:
        """Whether a search may find this row."""
        return row < self.rows and (self.live is None or bool(self.live.mask[row]))

    def split(self, selection: Selection | None) -> tuple[Selection | None, Selection | None]:
        """Divide a selection of live rows.

        Returns:
            What it selects of the generation's rows, and of the added ones counted from 0; None
            where that is all of them.
        """
        if selection is None or selection is self.live:
            return self._live_parts
        return self._parts(selection)

    @cached_property
    def _live_parts(self) -> tuple[Selection | None, Selection | None]:
        if self.live is None:
            return None, None
        of_base, of_added = self._parts(self.live)
        return (
            None if of_base.count == self.base_count else of_base,
            None if of_added.count == len(self.embeddings) else of_added,
        )

    def _parts(self, selection: Selection) -> tuple[Selection, Selection]:
        mask = selection.mask
        return Selection(mask[: self.base_count]), Selection(mask[self.base_count :])

    def select(self, passing: Selection, filter: Filter) -> Selection:
        """Return the live rows that pass a filter.

        Args:
            passing: Rows of the generation that pass the filter.
            filter: Filter to apply.
        """
        mask = np.concatenate([passing.mask, self.added.passing(filter, len(self.embeddings))])
        return Selection(mask if self.live is None else mask & self.live.mask)

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
