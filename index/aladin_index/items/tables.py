"""SQLite tables of items: ids, texts, metadata, the fields for filters, and packed region boxes.

The items of a generation and those added to it later are stored in tables of this form. A region's
box takes eight bytes.
"""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Collection, Iterable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from aladin_index.items.column_tables import store_columns
from aladin_index.items.filters import KIND_CODES, field_scalars
from aladin_network.photos.files import PhotoFile

# Number of steps along each edge: for a photo of 16,000 px a step is a quarter of a pixel.
_STEPS = 65535
_DTYPE = np.dtype("<u2")

COLUMNS = (
    "row, id, uri, path, text, image_id, width_px, height_px, metadata, offset, length, boxes, "
    "file_state, fingerprint"
)

# `fields` has a row for each value of each indexed field. The whole row is the key, so that a test
# is one scan of neighbouring rows. `filter_fields` numbers the indexed fields, and records which of
# them have a list of values in some item; if `every_field` is set, no item has a field that is
# missing there.
_TABLES = """
CREATE TABLE items (
    row INTEGER PRIMARY KEY,
    id TEXT NOT NULL,
    uri TEXT, path TEXT, text TEXT, image_id TEXT,
    width_px INTEGER, height_px INTEGER,
    metadata TEXT NOT NULL,
    "offset" INTEGER NOT NULL, length INTEGER,
    boxes BLOB,
    file_state TEXT,
    fingerprint TEXT
);
CREATE TABLE fields (
    field INTEGER NOT NULL, kind INTEGER NOT NULL, value NOT NULL, row INTEGER NOT NULL,
    PRIMARY KEY (field, kind, value, row)
) WITHOUT ROWID;
CREATE TABLE filter_fields (
    field INTEGER PRIMARY KEY, name TEXT NOT NULL UNIQUE, has_lists INTEGER NOT NULL DEFAULT 0
);
CREATE TABLE filter_settings (every_field INTEGER NOT NULL);
"""
# Data beyond this size is written to temporary files.
_CACHE_KIB = 65536
_FIELD = "SELECT field, has_lists FROM filter_fields WHERE name = ?"
_BY_ID = "CREATE UNIQUE INDEX by_id ON items (id)"


def pack_boxes(boxes: NDArray[np.float32]) -> bytes:
    """Return the stored form of boxes, (regions, 4): x0, y0, x1, y1 in fractions of the photo."""
    return np.rint(boxes.astype(np.float64) * _STEPS).astype(_DTYPE).tobytes()


def unpack_boxes(stored: bytes) -> NDArray[np.float32]:
    """Return the boxes of a stored form, (regions, 4) in fractions of the photo."""
    steps = np.frombuffer(stored, dtype=_DTYPE).reshape(-1, 4)
    return (steps / _STEPS).astype(np.float32)


class StoredItem(NamedTuple):
    """An item of an index.

    Attributes:
        row: Row in the ANN, the embeddings and the tokens.
        id: ID assigned by the user.
        uri: Address of an image as the user wrote it, or None for a text.
        path: Absolute path of an image's file, not to be shown, or None for a text.
        text: The text, or an image's first caption, or None.
        image_id: Id of the image that a text describes, if it was given to the build.
        width_px: Width of an image, upright.
        height_px: Height of an image, upright.
        metadata: Metadata supplied by the user.
        offset: Offset of an image in a file that contains several.
        length: Length of an image in that file, in bytes, or None if the file is the image.
        boxes: Boxes of an image's regions, as `pack_boxes` stores them, or None if they are not
            known, or the network reads photos, whose regions follow from the size.
        file_state: State of the image's file when it was encoded, as the text of
            `aladin_index.sync.file_state`, or its size and time, see
            `aladin_index.encode.source_items.file_state`, or None if it is not recorded.
        fingerprint: Result of `aladin_network.photos.fingerprint.fingerprint` for an image, or None
            if there is none or only its regions were read.
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
    offset: int = 0
    length: int | None = None
    boxes: bytes | None = None
    file_state: str | None = None
    fingerprint: str | None = None

    @property
    def size_px(self) -> tuple[int, int] | None:
        """Width and height of an image, or None for a text."""
        if self.width_px is None or self.height_px is None:
            return None
        return self.width_px, self.height_px

    @property
    def region_boxes(self) -> NDArray[np.float32] | None:
        """Boxes (regions, 4), x0, y0, x1, y1 in fractions of the image; None as for `boxes`."""
        return None if self.boxes is None else unpack_boxes(self.boxes)

    @property
    def photo(self) -> PhotoFile | None:
        """Location of an image's bytes, or None for a text."""
        return None if self.path is None else PhotoFile(Path(self.path), self.offset, self.length)


def create_tables(connection: sqlite3.Connection, filter_fields: Sequence[str] | None) -> None:
    """Create the empty tables; `filter_fields` get an index, all fields if it is None."""
    _create(connection, filter_fields)
    connection.execute(_BY_ID)


def insert_items(
    connection: sqlite3.Connection, items: Iterable[StoredItem], lines: str = "fields"
) -> None:
    """Insert items with new rows and ids; the caller commits."""
    fields: _FilterFields | None = None
    marks = ",".join("?" * len(StoredItem._fields))
    for item in items:
        values = (*item[:8], json.dumps(item.metadata, ensure_ascii=False), *item[9:])
        connection.execute(f"INSERT INTO items ({COLUMNS}) VALUES ({marks})", values)
        for name, value in item.metadata.items():
            fields = fields or _FilterFields(connection)
            field = fields.number(name)
            if field is None:
                continue
            stored = [
                (field, KIND_CODES[each.kind], each.value, item.row)
                for each in field_scalars(value)
            ]
            connection.executemany(f"INSERT OR IGNORE INTO {lines} VALUES (?,?,?,?)", stored)
            if len(stored) > 1:
                fields.note_list(field)


def write_items(
    path: Path, items: Iterable[StoredItem], filter_fields: Sequence[str] | None = None
) -> None:
    """Write the items of a whole generation; faster than `insert_items`, in bounded memory.

    The same items make the same file, byte for byte.
    """
    connection = sqlite3.connect(path)
    try:
        # No journal: an interrupted build writes the whole file again.
        connection.execute("PRAGMA journal_mode = OFF")
        connection.execute("PRAGMA synchronous = OFF")
        connection.execute("PRAGMA temp_store = FILE")
        connection.execute(f"PRAGMA cache_size = -{_CACHE_KIB}")
        _create(connection, filter_fields)
        connection.execute("CREATE TEMP TABLE lines (field, kind, value, row)")
        insert_items(connection, items, "temp.lines")
        connection.execute(_BY_ID)
        # In the order of the key, pages are written sequentially and filled completely. Equal
        # values in an item's list become one row.
        connection.execute(
            "INSERT OR IGNORE INTO fields SELECT * FROM temp.lines ORDER BY 1, 2, 3, 4"
        )
        store_columns(connection)
        connection.commit()
    finally:
        connection.close()


def unknown_fields(connection: sqlite3.Connection, names: Collection[str]) -> set[str]:
    """Return the fields among `names` that have no index for filters yet."""
    return {name for name in names if connection.execute(_FIELD, (name,)).fetchone() is None}


def field_names(connection: sqlite3.Connection) -> list[str]:
    """Return the metadata fields that have an index for filters."""
    return [name for (name,) in connection.execute("SELECT name FROM filter_fields")]


def count_fields(connection: sqlite3.Connection) -> int:
    """Return how many metadata fields have an index for filters."""
    # Counting the rows would read all of them. They are numbered without gaps.
    last = connection.execute("SELECT MAX(field) FROM filter_fields").fetchone()[0]
    return 0 if last is None else int(last)


def _create(connection: sqlite3.Connection, filter_fields: Sequence[str] | None) -> None:
    for statement in _TABLES.split(";")[:-1]:
        connection.execute(statement)
    connection.execute("INSERT INTO filter_settings VALUES (?)", (int(filter_fields is None),))
    names = dict.fromkeys(filter_fields or ())
    connection.executemany("INSERT INTO filter_fields (name) VALUES (?)", ((n,) for n in names))


class _FilterFields:
    """Numbers of the indexed fields; only those requested are read."""

    def __init__(self, connection: sqlite3.Connection) -> None:
        self._connection = connection
        settings = connection.execute("SELECT every_field FROM filter_settings").fetchone()
        self._every_field = bool(settings[0])
        self._numbers: dict[str, int | None] = {}
        self._with_lists: set[int] = set()

    def number(self, name: str) -> int | None:
        """Return the number of a field, new if all fields are indexed; None without an index."""
        if name not in self._numbers:
            line = self._connection.execute(_FIELD, (name,)).fetchone()
            if line is not None:
                self._numbers[name] = line[0]
                if line[1]:
                    self._with_lists.add(line[0])
            else:
                self._numbers[name] = self._new(name) if self._every_field else None
        return self._numbers[name]

    def note_list(self, field: int) -> None:
        """Record that an item has a list of values in a field."""
        if field not in self._with_lists:
            self._with_lists.add(field)
            self._connection.execute(
                "UPDATE filter_fields SET has_lists = 1 WHERE field = ?", (field,)
            )

    def _new(self, name: str) -> int:
        # The table numbers its rows from 1.
        inserted = self._connection.execute("INSERT INTO filter_fields (name) VALUES (?)", (name,))
        assert inserted.lastrowid is not None
        return inserted.lastrowid
