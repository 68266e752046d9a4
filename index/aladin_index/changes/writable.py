"""The live generation as its writers use it, one at a time."""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Generator, Iterable, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from aladin_index.ann.hub_correction import corrected_vectors, open_correction
from aladin_index.changes.database import (
    FILE_STATES,
    changes_database,
    new_database,
    open_to_write,
)
from aladin_index.encode.encoded import AnyBatch
from aladin_index.format.disk import FileIdentity, identity_at, identity_of
from aladin_index.format.layout import ITEMS, generation_folder
from aladin_index.format.manifest import MANIFEST, CollectionEntry, Manifest, read_manifest
from aladin_index.items.store import ItemStore
from aladin_index.items.tables import (
    StoredItem,
    count_fields,
    field_names,
    insert_items,
    unknown_fields,
)
from aladin_index.settings import MAX_FILTER_FIELDS
from aladin_index.tokens.codec import PackedTokens, TokenCodec
from aladin_index.tokens.quantisation import ErrorFeedback
from aladin_index.tokens.store import TokenStore, feedback_from, read_centroids
from aladin_network.errors import (
    DuplicateItemError,
    IndexMismatchError,
    InputError,
    NoSuchTargetError,
)
from aladin_network.scoring.encoding import TokenRows
from aladin_network.scoring.hub_correction import HubCorrection
from aladin_network.types import TARGETS, OnDuplicate, Target

AddOutcome = Literal["added", "replaced", "kept"]
Outcomes = dict[AddOutcome, list[str]]  # ids by what became of their new items
# What becomes of an item whose id exists already; otherwise it is an error.
OF_DUPLICATES: dict[OnDuplicate, AddOutcome] = {"replace": "replaced", "skip": "kept"}

_LIVE_ROW = "SELECT row FROM items WHERE id = ? AND row NOT IN (SELECT row FROM removed)"


class WritableGeneration:
    """A generation to which changes can be added; its user holds the changes lock."""

    def __init__(self, root: Path, generation: int, model_id: str) -> None:
        self.generation = generation
        self._root = root
        folder = generation_folder(root, generation)
        self._manifest: Manifest = read_manifest(folder)
        if self._manifest.model.id != model_id:
            raise IndexMismatchError(f"{root}: model", self._manifest.model.id, model_id)
        self._collections: dict[Target, WritableCollection] = {}
        # Kept open, so that no other file gets its inode.
        self._file = folder / MANIFEST
        self._descriptor = os.open(self._file, os.O_RDONLY | os.O_CLOEXEC)

    @property
    def is_in_place(self) -> bool:
        """Whether the open files are still those at their paths."""
        if identity_of(self._descriptor) != identity_at(self._file):
            return False
        return all(collection.is_in_place for collection in self._collections.values())

    def collection(self, target: Target) -> WritableCollection:
        entry = self._manifest.collection(target)
        if entry is None:
            raise NoSuchTargetError(target, " and ".join(self._manifest.targets))
        if target not in self._collections:
            folder = generation_folder(self._root, self.generation) / target
            database = changes_database(self._root, self.generation, target)
            feedback = self._what_asks(target, entry)
            self._collections[target] = WritableCollection(
                target, folder, database, entry, feedback
            )
        return self._collections[target]

    def _token_store(self, target: Target, entry: CollectionEntry) -> TokenStore:
        folder = generation_folder(self._root, self.generation) / target
        return TokenStore.of(folder, entry)

    def _what_asks(self, target: Target, entry: CollectionEntry) -> ErrorFeedback | None:
        """Compute from the other collection how to round tokens of this one, as a build does."""
        if entry.token_dtype == "float16":
            return None
        for other in TARGETS:
            asking = self._manifest.collection(other)
            if other != target and asking is not None:
                return feedback_from(self._token_store(other, asking))
        return None

    def close(self) -> None:
        for collection in self._collections.values():
            collection.close()
        os.close(self._descriptor)


@dataclass
class WritableCollection:
    """One collection of a generation to which changes can be added.

    Attributes:
        database: Database of its changes; created with the first change.
        feedback: Error feedback that its tokens are rounded with, see
            `aladin_index.tokens.quantisation`.
    """

    target: Target
    folder: Path
    database: Path
    entry: CollectionEntry
    feedback: ErrorFeedback | None
    codec: TokenCodec = field(init=False)
    _correction: HubCorrection | None = field(init=False, default=None)
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
        """Whether the open database is still the one at its path."""
        return self._connection is None or self._identity == identity_at(self.database)

    def close(self) -> None:
        self._base.close()
        if self._connection is not None:
            self._connection.close()

    @contextmanager
    def transaction(self) -> Generator[sqlite3.Connection]:
        """Apply the changes of the block atomically; roll back if it raises."""
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
        """Return the live row of an id, or None if there is none."""
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

    def add(
        self, connection: sqlite3.Connection, batch: AnyBatch, on_duplicate: OnDuplicate
    ) -> Outcomes:
        """Add items inside a `transaction`; an id may occur twice."""
        last = connection.execute("SELECT MAX(row) FROM items").fetchone()[0]
        row = self.entry.count if last is None else int(last) + 1
        outcomes: Outcomes = {"added": [], "replaced": [], "kept": []}
        # Packed one by one: the rounding of a token may depend on what is packed with it.
        for item, embedding, tokens in batch.each():
            old = self.live_row(item.id)
            outcome = "added" if old is None else OF_DUPLICATES.get(on_duplicate)
            if outcome is None:
                raise DuplicateItemError(self.target, item.id)
            outcomes[outcome].append(item.id)
            if outcome == "kept":
                continue
            if old is not None:
                self.remove(old)
            packed = self.codec.pack(tokens)
            insert_items(connection, [item._replace(row=row)])
            _insert_encoding(connection, row, self._vector(embedding, packed), packed)
            row += 1
        return outcomes

    def _vector(self, embedding: NDArray[np.float32], packed: PackedTokens) -> NDArray[np.float32]:
        """Return the vector of a new item: its embedding, with the biases of a correction."""
        if not self.entry.corrected:
            return embedding
        if self._correction is None:
            self._correction = open_correction(self.folder.parent)
        values = self.codec.unpack(packed)
        tokens = TokenRows(values, np.array([len(values)], dtype=np.int64))
        return corrected_vectors(self._correction, self.target, embedding[None], tokens)[0]

    def check_fields(self, items: Iterable[StoredItem]) -> None:
        """Reject items that would exceed the maximum number of indexed metadata fields."""
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
                # Some of the fields may already be among those of the generation.
                added = len(self._base.unknown_fields(field_names(connection)))
            count += added
        if count > MAX_FILTER_FIELDS:
            raise InputError(
                f"metadata: expected at most {MAX_FILTER_FIELDS} distinct fields in the index, "
                f"got {count} with those of the new items; an index of "
                "`aladin index build --filter-fields` takes any number"
            )

    def remove(self, row: int) -> None:
        """Mark a row as removed."""
        connection = self._connected()
        assert connection is not None
        connection.execute("INSERT INTO removed (row) VALUES (?)", (row,))

    def is_live(self, row: int) -> bool:
        """Whether a row of the generation or of its changes is not removed."""
        connection = self._connected()
        if connection is None:
            return True
        found = connection.execute("SELECT 1 FROM removed WHERE row = ?", (row,)).fetchone()
        return found is None

    def record_files(self, states: Mapping[int, str]) -> None:
        """Record the states of the files of some rows, in place of earlier ones."""
        if not states:
            return
        connection = self._connected()
        assert connection is not None
        connection.execute(
            f"CREATE TABLE IF NOT EXISTS {FILE_STATES} "
            "(row INTEGER PRIMARY KEY, file_state TEXT NOT NULL)"
        )
        insert = f"INSERT OR REPLACE INTO {FILE_STATES} VALUES (?, ?)"
        connection.executemany(insert, states.items())

    def _connected(self) -> sqlite3.Connection | None:
        """Return the cached connection, or None while there is no database."""
        if self._connection is None and self.database.exists():
            # SQLite does not report which file it has opened, so the path is checked before and
            # after.
            identity = identity_at(self.database)
            connection = open_to_write(self.database)
            if identity is None or identity != identity_at(self.database):
                connection.close()
                raise sqlite3.OperationalError(f"{self.database} was replaced")
            self._connection, self._identity = connection, identity
        return self._connection


def _insert_encoding(
    connection: sqlite3.Connection,
    row: int,
    vector: NDArray[np.float32],
    packed: PackedTokens,
) -> None:
    arrays = [None if array is None else array.tobytes() for array in packed]
    values = (row, vector.astype(np.float32).tobytes(), len(packed.values), *arrays)
    connection.execute("INSERT INTO encodings VALUES (?,?,?,?,?,?)", values)
