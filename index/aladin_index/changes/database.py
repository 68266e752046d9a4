"""Changes of one collection of a generation in one SQLite file: additions and deletions.

INDEX/changes/000001/images.sqlite   beside the generation, which itself never changes

One transaction is one call of add or delete. Lines are only ever inserted: an item that is removed
or replaced keeps its lines and its row is listed as removed, so that a search that began before
can still read what it found. `aladin_index.generations.compact` starts a new generation without
them.
"""

from __future__ import annotations

import sqlite3
import threading
from collections import Counter
from collections.abc import Callable, Generator, Sequence
from contextlib import closing, contextmanager
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray
from pyroaring import BitMap

from aladin_index.changes.opening import BUSY_S, SeenFiles, open_database, open_to_read
from aladin_index.format.disk import FileIdentity, identity_at
from aladin_index.format.layout import CHANGES, PHOTOS
from aladin_index.items.columns import GrowingColumns, combine
from aladin_index.items.field_tables import (
    FieldLine,
    FieldValues,
    ValuesEnd,
    count_values,
    describe_fields,
    field_lines,
)
from aladin_index.items.filters import Filter, Kind, Test, leaves
from aladin_index.items.look_ups import VALUES_A_STATEMENT, read_values
from aladin_index.items.store import ThreadConnections, stored_item
from aladin_index.items.tables import COLUMNS, StoredItem, create_tables
from aladin_index.items.words import WordIndex
from aladin_index.tokens.codec import PackedTokens, TokenCodec
from aladin_index.tokens.store import TokenStore
from aladin_network.errors import IndexCorruptError
from aladin_network.files import atomic_file, make_folder
from aladin_network.types import Target

# `encodings` has one row for each row of `items`. The token arrays are those of
# `aladin_index.tokens.codec.PackedTokens`. `removed` has an ascending counter, so that a reader can
# query only what is new.
_TABLES = """
CREATE TABLE encodings (
    row INTEGER PRIMARY KEY,
    embedding BLOB NOT NULL,
    tokens INTEGER NOT NULL,
    "values" BLOB NOT NULL, scales BLOB, centroid_ids BLOB
);
CREATE TABLE removed (sequence INTEGER PRIMARY KEY AUTOINCREMENT, row INTEGER NOT NULL UNIQUE);
"""
TOKEN_COLUMNS = ("values", "scales", "centroid_ids")
# States of files that were recorded later than their items, of the generation or added. The table
# is created with the first of them.
FILE_STATES = "file_states"
# A database that is changed during so many attempts to read it is given up.
_MOST_READS = 100
# Fields whose columns stay in memory.
_MOST_FIELDS = 1000


T = TypeVar("T")


def changes_folder(root: Path, generation: int) -> Path:
    return root / CHANGES / f"{generation:06d}"


def changes_database(root: Path, generation: int, target: Target) -> Path:
    """Return the file with the changes of one collection; it exists once there are changes."""
    return changes_folder(root, generation) / f"{target}.sqlite"


@contextmanager
def new_database(path: Path, filter_fields: Sequence[str] | None) -> Generator[sqlite3.Connection]:
    """Create a database without changes; the complete file appears at the end of the block.

    `filter_fields` None makes an index for all metadata fields. What the connection has done is
    committed at the end.
    """
    make_folder(path.parent)
    with atomic_file(path) as partial:
        # A killed process may have had the same process id: SQLite would reuse its leftover files.
        for suffix in ("", "-wal", "-shm"):
            partial.with_name(partial.name + suffix).unlink(missing_ok=True)
        with closing(sqlite3.connect(partial, isolation_level=None)) as connection:
            # The file becomes visible only when it is complete and on disk.
            connection.execute("PRAGMA journal_mode = OFF")
            connection.execute("PRAGMA synchronous = OFF")
            connection.execute("BEGIN")
            create_tables(connection, filter_fields)
            # Not unique: the id of a replaced item occurs again.
            connection.execute("DROP INDEX by_id")
            connection.execute("CREATE INDEX by_id ON items (id)")
            for statement in _TABLES.split(";")[:-1]:
                connection.execute(statement)
            yield connection
            connection.execute("COMMIT")
            # Write-ahead log from here on: readers and writers never wait for each other.
            connection.execute("PRAGMA journal_mode = WAL")


def open_to_write(path: Path) -> sqlite3.Connection:
    """Connect to a database whose commits are durable when they return."""
    # Used by one thread at a time, namely the one that holds the writer's lock.
    connection = sqlite3.connect(
        path, isolation_level=None, timeout=BUSY_S, check_same_thread=False
    )
    connection.execute("PRAGMA synchronous = FULL")
    return connection


def named_photos(path: Path) -> set[str]:
    """Return the paths of uploaded photos that the items of a database name."""
    with closing(open_to_read(path)) as connection:
        lines = connection.execute("SELECT path FROM items WHERE path GLOB ?", (f"{PHOTOS}/*",))
        return {name for (name,) in lines}


def copy_encodings(
    source: sqlite3.Connection, to: sqlite3.Connection, rows: range, shift: int
) -> None:
    """Copy the encodings of some consecutive rows."""
    lines = source.execute(
        "SELECT * FROM encodings WHERE row >= ? AND row < ? ORDER BY row", (rows.start, rows.stop)
    )
    to.executemany(
        "INSERT INTO encodings VALUES (?,?,?,?,?,?)",
        ((line[0] + shift, *line[1:]) for line in lines),
    )


class AddedItems:
    """Reads items and tokens from a database of changes; thread-safe.

    Attributes:
        identity: Identity of the open file, or None if none was opened yet.
        fixed: State of the files when they were opened, if SQLite does not notice later changes;
            None if it does.
    """

    def __init__(self, path: Path, base_count: int, codec: TokenCodec) -> None:
        self.path = path
        self.identity: FileIdentity | None = None
        self.fixed: SeenFiles | None = None
        self._base_count = base_count
        self._codec = codec
        self._database = ThreadConnections(path, self._connect)
        self._columns: dict[str, GrowingColumns] = {}
        self._columns_lock = threading.Lock()
        self.words = WordIndex(self.items_by_rows, base_count)

    def connect(self) -> sqlite3.Connection:
        """Open a connection, which `close` closes."""
        return self._database.open()

    def reopen_changed(self) -> bool:
        """Have later calls read `fixed` files anew if they may have changed since they were opened.

        Returns whether they may have; the caller then has to connect anew.
        """
        fixed = self.fixed
        if fixed is None or (fixed.is_settled and fixed.are_now(self.path)):
            return False
        # Other threads may be using the old connections, which are closed when they are dropped.
        self._database = ThreadConnections(self.path, self._connect)
        self.fixed = None
        return True

    def was_changed(self) -> bool:
        """Whether `fixed` files were changed since they were opened."""
        return self.fixed is not None and not self.fixed.are_now(self.path)

    def close(self) -> None:
        """Close the connections of all threads."""
        self._database.close()

    def damaged(self, error: sqlite3.Error) -> IndexCorruptError:
        """Return the error that reports an unreadable database."""
        return self._database.damaged(error)

    def tokens(self, rows: NDArray[np.int64], lengths: NDArray[np.int64]) -> TokenStore:
        """Read the tokens of some distinct rows."""
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
        lines = self._by_rows(f"SELECT {COLUMNS} FROM items", rows)
        return [stored_item(line) for line in lines]

    def items_by_id(self, item_id: str) -> list[StoredItem]:
        """Read all items that ever had this id."""
        try:
            lines = self._lines(f"SELECT {COLUMNS} FROM items WHERE id = ?", (item_id,))
        except UnicodeEncodeError:  # a lone surrogate is part of no stored id
            return []
        return [stored_item(line) for line in lines]

    def ids(self) -> list[tuple[str, int]]:
        """Read the ids and rows of all items ever added."""
        return self._lines("SELECT id, row FROM items")

    def file_states(self) -> dict[int, str]:
        """Read the states of files that were recorded later than their items, by row."""
        if not self._lines("SELECT 1 FROM sqlite_master WHERE name = ?", (FILE_STATES,)):
            return {}
        return dict(self._lines(f"SELECT row, file_state FROM {FILE_STATES}"))

    def field_lines(
        self, name: str, after: FieldLine | None, *, descending: bool
    ) -> list[FieldLine]:
        """Read values of a field in their order, see `aladin_index.items.field_tables`."""
        read = partial(field_lines, name=name, after=after, descending=descending)
        return self._run(read)

    def count_values(
        self, name: str, kind: Kind, most: int, end: ValuesEnd
    ) -> Counter[int | float | str]:
        """Count values of a field, see `aladin_index.items.field_tables`."""
        return self._run(partial(count_values, name=name, kind=kind, most=most, end=end))

    def describe_fields(self) -> dict[str, list[FieldValues]]:
        """Describe the indexed fields of all items ever added, like `ItemStore.fields`."""
        return self._run(describe_fields)

    def passing(self, filter: Filter, count: int) -> BitMap:
        """Find the added rows that pass a filter.

        Of the first `count` rows in the order of their addition, numbered as those of
        `items_by_rows`.
        """
        rows = range(self._base_count, self._base_count + count)

        def find(connection: sqlite3.Connection) -> dict[Test, BitMap]:
            found: dict[Test, BitMap] = {}
            if len(self._columns) > _MOST_FIELDS:  # of which any filter may name new ones
                self._columns.clear()
            for test in set(leaves(filter)):
                columns = self._columns.setdefault(test.field, GrowingColumns(rows.start))
                read = partial(read_values, connection, test.field)
                found[test] = columns.passing(test, rows.stop, read)
            return found

        with self._columns_lock:
            return combine(filter, self._run(find, again=self._columns.clear), rows)

    def _by_rows(self, select: str, rows: Sequence[int]) -> list[Any]:
        lines: list[Any] = []
        for start in range(0, len(rows), VALUES_A_STATEMENT):
            batch = rows[start : start + VALUES_A_STATEMENT]
            marks = ",".join("?" * len(batch))
            lines += self._lines(f"{select} WHERE row IN ({marks})", tuple(batch))
        return lines

    def _lines(self, statement: str, values: tuple[Any, ...] = ()) -> list[Any]:
        return self._run(lambda connection: connection.execute(statement, values).fetchall())

    def _run(
        self, read: Callable[[sqlite3.Connection], T], again: Callable[[], None] = lambda: None
    ) -> T:
        """Read with the connection of this thread.

        `read` is called again, after `again`, if the files were changed under a connection that
        cannot notice it, and what was read may be partly of before, and partly of afterwards.
        """
        for _ in range(_MOST_READS):
            database = self._database
            try:
                found = database.run(read)
            except IndexCorruptError:
                if not self.was_changed():
                    raise
            else:
                if not self.was_changed() and database is self._database:
                    return found
            again()
            self.reopen_changed()
        raise IndexCorruptError(self.path, "it changed all the time while it was read")

    def _connect(self) -> sqlite3.Connection:
        if self.identity is None:
            self.identity = identity_at(self.path)
        connection, fixed = open_database(self.path)
        if self.identity is not None and self.identity != identity_at(self.path):
            connection.close()
            raise IndexCorruptError(self.path, "was replaced while it was read")
        # Of several threads' connections the first is the oldest.
        self.fixed = self.fixed or fixed
        return connection
