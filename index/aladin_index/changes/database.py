"""Changes of one collection of a generation in one SQLite file: additions and deletions.

INDEX/changes/000001/images.sqlite   beside the generation, which itself never changes

One transaction is one call of add or delete. Lines are only ever inserted: an item that is removed
or replaced keeps its lines and its row is listed as removed, so that a search that began before
can still read what it found. `aladin_index.generations.compact` starts a new generation without
them.
"""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Generator, Sequence
from contextlib import closing, contextmanager
from pathlib import Path

from aladin_index.format.layout import CHANGES
from aladin_index.items.tables import create_tables
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
# Others wait this long for a checkpoint, or for a reader that recovers after a killed writer.
_BUSY_S = 30.0


def changes_folder(root: Path, generation: int) -> Path:
    """Return the folder of a generation's changes."""
    return root / CHANGES / f"{generation:06d}"


def changes_database(root: Path, generation: int, target: Target) -> Path:
    """Return the file with the changes of one collection; it exists once there are changes."""
    return changes_folder(root, generation) / f"{target}.sqlite"


@contextmanager
def new_database(path: Path, filter_fields: Sequence[str] | None) -> Generator[sqlite3.Connection]:
    """Create a database without changes; the complete file appears at the end of the block.

    Args:
        path: Path of the new file.
        filter_fields: Metadata fields that get an index for filters, or None for all fields.

    Yields:
        A connection to fill it with; committed at the end.
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
        path, isolation_level=None, timeout=_BUSY_S, check_same_thread=False
    )
    connection.execute("PRAGMA synchronous = FULL")
    return connection


def open_to_read(path: Path) -> sqlite3.Connection:
    """Connect to a database read-only.

    On a medium that is mounted for reading, the files by which readers and writers agree cannot be
    made. Unless a writer elsewhere has made them, the database is taken to stay as it is.
    """
    ahead = path.with_name(f"{path.name}-wal")
    fixed = os.statvfs(path.parent).f_flag & os.ST_RDONLY and not ahead.exists()
    uri = f"{path.absolute().as_uri()}?mode=ro{'&immutable=1' if fixed else ''}"
    # One connection per thread, or one lock around it; `close` may be called by any thread.
    return sqlite3.connect(
        uri, uri=True, isolation_level=None, timeout=_BUSY_S, check_same_thread=False
    )


def copy_encodings(
    source: sqlite3.Connection, to: sqlite3.Connection, rows: range, shift: int
) -> None:
    """Copy the encodings of some consecutive rows.

    Args:
        source: Database of changes.
        to: Destination database of a collection with the same token codec.
        rows: Rows in `source`.
        shift: Number added to each row number.
    """
    lines = source.execute(
        "SELECT * FROM encodings WHERE row >= ? AND row < ? ORDER BY row", (rows.start, rows.stop)
    )
    to.executemany(
        "INSERT INTO encodings VALUES (?,?,?,?,?,?)",
        ((line[0] + shift, *line[1:]) for line in lines),
    )
