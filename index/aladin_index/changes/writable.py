"""The live generation as those see it who add to it and remove from it, one at a time."""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Generator, Iterable
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from aladin_index.changes.database import changes_database, new_database, open_to_write
from aladin_index.format.layout import ITEMS, generation_folder
from aladin_index.format.locks import FileIdentity, identity_at, identity_of
from aladin_index.format.manifest import MANIFEST, CollectionEntry, Manifest, read_manifest
from aladin_index.items.store import ItemStore
from aladin_index.items.tables import (
    StoredItem,
    add_missing_columns,
    count_fields,
    field_names,
    unknown_fields,
)
from aladin_index.settings import MAX_FILTER_FIELDS
from aladin_index.tokens.codec import PackedTokens, TokenCodec
from aladin_index.tokens.quantisation import ErrorFeedback
from aladin_index.tokens.store import TokenStore, feedback_from, read_centroids
from aladin_network.errors import IndexMismatchError, InputError, NoSuchTargetError
from aladin_network.types import TARGETS, Target

_LIVE_ROW = "SELECT row FROM items WHERE id = ? AND row NOT IN (SELECT row FROM removed)"


class WritableGeneration:
    """A generation that changes are written beside; whoever uses it has the lock.

    Attributes:
        generation: its number.
    """

    def __init__(self, root: Path, generation: int, model_id: str) -> None:
        """Read what it is; its sides are opened when they are asked for.

        Raises:
            IndexMismatchError: it was built with another model.
            OSError: its manifest cannot be read.
        """
        self.generation = generation
        self._root = root
        folder = generation_folder(root, generation)
        self._manifest: Manifest = read_manifest(folder)
        if self._manifest.model.id != model_id:
            raise IndexMismatchError(f"{root}: model", self._manifest.model.id, model_id)
        self._sides: dict[Target, WritableCollection] = {}
        # Open, so that no other file gets its inode.
        self._file = folder / MANIFEST
        self._descriptor = os.open(self._file, os.O_RDONLY | os.O_CLOEXEC)

    @property
    def is_in_place(self) -> bool:
        """Whether what is open is what is at its paths now."""
        if identity_of(self._descriptor) != identity_at(self._file):
            return False
        return all(side.is_in_place for side in self._sides.values())

    def side(self, target: Target) -> WritableCollection:
        """Return one side.

        Raises:
            NoSuchTargetError: the index was built without it.
        """
        entry = self._manifest.side(target)
        if entry is None:
            raise NoSuchTargetError(target, " and ".join(self._manifest.targets))
        if target not in self._sides:
            folder = generation_folder(self._root, self.generation) / target
            database = changes_database(self._root, self.generation, target)
            self._sides[target] = WritableCollection(
                folder, database, entry, self._what_asks(target, entry)
            )
        return self._sides[target]

    def _what_asks(self, target: Target, entry: CollectionEntry) -> ErrorFeedback | None:
        """Learn from the other side how tokens of this one are best rounded, as a build does."""
        if entry.token_dtype == "float16":
            return None
        for other in TARGETS:
            asking = self._manifest.side(other)
            if other != target and asking is not None:
                folder = generation_folder(self._root, self.generation) / other
                numbers = (asking.count, asking.token_count, asking.token_dim)
                return feedback_from(TokenStore.open(folder, *numbers, asking.token_dtype))
        return None

    def close(self) -> None:
        """Close the databases."""
        for side in self._sides.values():
            side.close()
        os.close(self._descriptor)


@dataclass
class WritableCollection:
    """One side of a generation that changes are written beside.

    Attributes:
        folder: of the side's files.
        database: of its changes; made with the first of them.
        entry: what the manifest says of it.
        feedback: what its tokens are rounded for, see `aladin_index.tokens.quantisation`.
        codec: of its tokens.
    """

    folder: Path
    database: Path
    entry: CollectionEntry
    feedback: ErrorFeedback | None
    codec: TokenCodec = field(init=False)
    _base: ItemStore = field(init=False)
    _connection: sqlite3.Connection | None = field(init=False, default=None)
    _identity: FileIdentity | None = field(init=False, default=None)

    def __post_init__(self) -> None:
        dim, dtype = self.entry.token_dim, self.entry.token_dtype
        centroids = read_centroids(self.folder, dim, dtype)
        self.codec = TokenCodec(dtype, dim, centroids, self.feedback)
        self._base = ItemStore(self.folder / ITEMS)

    @property
    def is_in_place(self) -> bool:
        """Whether the database that is open is the one that is there now."""
        return self._connection is None or self._identity == identity_at(self.database)

    def close(self) -> None:
        """Close the databases."""
        self._base.close()
        if self._connection is not None:
            self._connection.close()

    @contextmanager
    def transaction(self) -> Generator[sqlite3.Connection]:
        """Apply what the block does in one step, or nothing of it where it raises."""
        if not self.database.exists():
            with new_database(self.database, self.entry.filter_fields):
                pass
        connection = self._connected()
        assert connection is not None
        connection.execute("BEGIN IMMEDIATE")
        try:
            yield connection
            connection.execute("COMMIT")
        except BaseException:
            if connection.in_transaction:
                connection.execute("ROLLBACK")
            raise

    def live_row(self, item_id: str) -> int | None:
        """Return the row that has an id now; None where none has."""
        connection = self._connected()
        if connection is not None:
            try:
                line = connection.execute(_LIVE_ROW, (item_id,)).fetchone()
            except UnicodeEncodeError:  # a lone surrogate is part of no stored id
                return None
            if line is not None:
                return int(line[0])
        item = self._base.by_id(item_id)
        if item is None or connection is None:
            return None if item is None else item.row
        gone = connection.execute("SELECT 1 FROM removed WHERE row = ?", (item.row,)).fetchone()
        return item.row if gone is None else None

    def check_fields(self, items: Iterable[StoredItem]) -> None:
        """Refuse items by which more metadata fields would get an index than may have one.

        Raises:
            InputError: with the fields of these items there would be too many.
        """
        if self.entry.filter_fields is not None:
            return
        names = {name for item in items for name in item.metadata}
        if not names:
            return
        new = self._base.unknown_fields(names)
        connection = self._connected()
        if connection is not None:
            new = unknown_fields(connection, new)
        if not new:
            return
        count = self._base.count_fields() + len(new)
        if connection is not None:
            added = count_fields(connection)
            if added <= MAX_FILTER_FIELDS < count + added:
                # Some of them may be among those of the generation.
                added = len(self._base.unknown_fields(field_names(connection)))
            count += added
        if count > MAX_FILTER_FIELDS:
            raise InputError(
                f"metadata: expected at most {MAX_FILTER_FIELDS} distinct fields in the index, "
                f"got {count} with those of the new items; an index that is built with "
                "--filter-fields takes any number"
            )

    def next_row(self) -> int:
        """Return the row of the next item that is added."""
        connection = self._connected()
        assert connection is not None
        last = connection.execute("SELECT MAX(row) FROM items").fetchone()[0]
        return self.entry.count if last is None else int(last) + 1

    def remove(self, row: int) -> None:
        """List a row as removed."""
        connection = self._connected()
        assert connection is not None
        connection.execute("INSERT INTO removed (row) VALUES (?)", (row,))

    def _connected(self) -> sqlite3.Connection | None:
        """Return the connection, kept; None while there is no database."""
        if self._connection is None and self.database.exists():
            # SQLite does not say which file it has opened: the one that is there before and after.
            identity = identity_at(self.database)
            connection = open_to_write(self.database)
            if identity is None or identity != identity_at(self.database):
                connection.close()
                raise sqlite3.OperationalError(f"{self.database} was replaced")
            self._connection, self._identity = connection, identity
            add_missing_columns(connection)
        return self._connection


def insert_encoding(
    connection: sqlite3.Connection,
    row: int,
    embedding: NDArray[np.float32],
    packed: PackedTokens,
) -> None:
    """Insert what the network made of one item.

    Args:
        connection: to a database of changes.
        row: of the item.
        embedding: (d_match,).
        packed: its tokens.
    """
    arrays = [None if array is None else array.tobytes() for array in packed]
    values = (row, embedding.astype(np.float32).tobytes(), len(packed.values), *arrays)
    connection.execute("INSERT INTO encodings VALUES (?,?,?,?,?,?)", values)
