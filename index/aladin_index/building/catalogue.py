"""The input items of a build, on disk: read once, checked, then read by row.

A source may be longer than memory, and may be read but once. Everything later (encoding, a
resumed build, the database of the new generation) reads from here. With their finished shards, the
items are streamed into a collection of the new generation.
"""

from __future__ import annotations

import hashlib
import shutil
import sqlite3
from collections.abc import Generator, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, closing, contextmanager
from dataclasses import replace
from pathlib import Path

import numpy as np

from aladin_index.building.resume import rows_of_part
from aladin_index.building.shards import ROWS, Shard, ShardItems, codec_of
from aladin_index.encode.encoded import PackedBatch
from aladin_index.encode.read_ahead import StageSeconds
from aladin_index.encode.source_items import (
    ImageItem,
    SourceItem,
    checked_items,
    file_state,
    item_from_json,
    item_json,
    place_of,
    stored_form,
)
from aladin_index.format.layout import NEW_CATALOGUE
from aladin_index.format.skipped import SkippedItem
from aladin_index.generations.collection_writer import CollectionSource
from aladin_index.settings import MAX_FILTER_FIELDS, BuildSettings
from aladin_index.tokens.codec import TokenCodec
from aladin_network.errors import InputError, brief
from aladin_network.types import Progress, Target

_UNITS: dict[Target, str] = {"images": "photos listed", "texts": "texts listed"}
_BATCH = 1000
_CACHE_KIB = 65536
_MISSING = "missing"  # as part of a fingerprint, in place of a state
# `path` is the file that contains a photo, as in `item`; its state is part of a fingerprint. What
# the source skipped precedes the item of `row`, in the order of `number`.
_SCHEMA = """
CREATE TABLE items (
    row INTEGER PRIMARY KEY, id TEXT NOT NULL UNIQUE, path TEXT, item TEXT NOT NULL
);
CREATE TABLE skipped (
    number INTEGER PRIMARY KEY, row INTEGER NOT NULL, id TEXT NOT NULL, reason TEXT NOT NULL
);
CREATE TABLE file_states (row INTEGER PRIMARY KEY, state TEXT NOT NULL);
"""


class Catalogue:
    """The items of one collection in input order; only for the thread that opened it."""

    def __init__(self, file: Path, target: Target, settings: BuildSettings) -> None:
        self._target: Target = target
        self._connection = sqlite3.connect(f"{file.absolute().as_uri()}?mode=rw", uri=True)
        self._connection.execute("PRAGMA journal_mode = OFF")
        self._connection.execute("PRAGMA synchronous = OFF")
        self._count = int(self._connection.execute("SELECT COUNT(*) FROM items").fetchone()[0])
        self.rows = rows_of_part(self._count, settings, target)

    def items(self, rows: range) -> list[SourceItem]:
        """Read some consecutive items, photos with the states that `fingerprint` has found."""
        lines = self._connection.execute(
            "SELECT item, state FROM items LEFT JOIN file_states USING (row) "
            "WHERE row >= ? AND row < ? ORDER BY row",
            (rows.start, rows.stop),
        )
        items = [(item_from_json(line, self._target), state) for line, state in lines]
        return [
            replace(item, file_state=state)
            if state is not None and isinstance(item, ImageItem) and item.has_own_file
            else item
            for item, state in items
        ]

    def skipped(self) -> list[SkippedItem]:
        """Read what the source skipped among the items of the build, or after the last one."""
        rows = self.rows
        end = rows.stop + (rows.stop == self._count)
        statement = "SELECT id, reason FROM skipped WHERE row >= ? AND row < ? ORDER BY number"
        return [
            SkippedItem(*line) for line in self._connection.execute(statement, (rows.start, end))
        ]

    def fingerprint(self) -> str:
        """Hash the data of the items of the build, and the state of their files.

        A file's state is its length and the time of its last change. It is kept for `items`, since
        the photos are read later: one that is changed meanwhile has another state by then.
        """
        rows = self.rows
        digest = hashlib.sha256(f"{self._target} {rows.start} {rows.stop}\n".encode())
        statement = "SELECT row, item, path FROM items WHERE row >= ? AND row < ? ORDER BY row"
        last_path, state = "", ""
        for start in range(rows.start, rows.stop, _BATCH):
            part = (start, min(start + _BATCH, rows.stop))
            found: list[tuple[int, str]] = []
            for row, line, path in self._connection.execute(statement, part):
                if path is not None and path != last_path:  # neighbours may lie in one tar
                    last_path, state = path, file_state(Path(path)) or _MISSING
                if path is not None and state != _MISSING:
                    found.append((row, state))
                digest.update(f"{line} {state}\n".encode())
            insert = "INSERT OR REPLACE INTO file_states VALUES (?, ?)"
            self._connection.executemany(insert, found)
        for item_id, reason in self.skipped():
            digest.update(f"skipped {item_id} {reason}\n".encode())
        return digest.hexdigest()

    def close(self) -> None:
        self._connection.close()


@contextmanager
def listed(
    root: Path,
    sources: Mapping[Target, Iterable[SourceItem | SkippedItem]],
    settings: BuildSettings,
    progress: Progress,
    seconds: StageSeconds,
) -> Generator[dict[Target, Catalogue]]:
    """Read the sources of a build into catalogues, which exist inside the block."""
    folder = root / NEW_CATALOGUE
    folder.mkdir()
    try:
        with ExitStack() as opened:
            catalogues: dict[Target, Catalogue] = {}
            for target, items in sources.items():
                file = folder / f"{target}.sqlite"
                with seconds.measure("list"):
                    write_catalogue(file, target, items, progress, settings)
                catalogues[target] = opened.enter_context(
                    closing(Catalogue(file, target, settings))
                )
            yield catalogues
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def write_catalogue(
    file: Path,
    target: Target,
    items: Iterable[SourceItem | SkippedItem],
    progress: Progress,
    settings: BuildSettings,
) -> None:
    """Read a whole source; items that no index could store are skipped."""
    progress.start(None, _UNITS[target])
    connection = sqlite3.connect(file)
    try:
        # No journal: a build that is interrupted while reading starts again.
        connection.execute("PRAGMA journal_mode = OFF")
        connection.execute("PRAGMA synchronous = OFF")
        connection.execute(f"PRAGMA cache_size = -{_CACHE_KIB}")
        connection.executescript(_SCHEMA)
        count, writer = 0, _Writer(connection, target, settings)
        for item in checked_items(items, target, settings, writer.insert):
            if isinstance(item, SkippedItem):
                writer.skip(item)
                continue
            count += 1
            if count % _BATCH == 0:
                progress.advance(_BATCH)
        progress.advance(count % _BATCH)
        if count == 0:
            raise InputError(f"{target}: expected at least one item, got none{_but(connection)}")
        connection.commit()
    finally:
        connection.close()


class _Writer:
    """Writes items and what is skipped."""

    def __init__(
        self, connection: sqlite3.Connection, target: Target, settings: BuildSettings
    ) -> None:
        self._connection = connection
        self._target: Target = target
        self._settings = settings
        self._fields: set[str] = set()
        self._row = 0

    def skip(self, item: SkippedItem) -> None:
        """Record an item that cannot be used."""
        statement = "INSERT INTO skipped (row, id, reason) VALUES (?, ?, ?)"
        self._connection.execute(statement, (self._row, *item))

    def insert(self, item: SourceItem, number: int) -> str | None:
        """Insert an item that can be stored, or return why it is of no use."""
        target, settings = self._target, self._settings
        path = str(item.path) if isinstance(item, ImageItem) else None
        line = (self._row, item.id, path, item_json(item))
        statement = "INSERT OR IGNORE INTO items VALUES (?, ?, ?, ?)"
        if not self._connection.execute(statement, line).rowcount:
            find = "SELECT row, item FROM items WHERE id = ?"
            row, known = self._connection.execute(find, (item.id,)).fetchone()
            first = place_of(item_from_json(known, target), row)
            again = place_of(item, number)
            return f"{target}: id {brief(item.id)} repeats, {again} after {first}"
        if settings.filter_fields is None:
            self._fields.update(item.metadata)
            if len(self._fields) > MAX_FILTER_FIELDS:
                raise InputError(
                    f"{target}: expected at most {MAX_FILTER_FIELDS} distinct metadata fields, "
                    f"got more by item {brief(item.id)}; `aladin index build --filter-fields` "
                    "names those to filter by"
                )
        self._row += 1
        return None


def _but(connection: sqlite3.Connection) -> str:
    """Describe the skipped items, for an error message."""
    count = connection.execute("SELECT COUNT(*) FROM skipped").fetchone()[0]
    if count == 0:
        return ""
    first = "SELECT id, reason FROM skipped ORDER BY number LIMIT 1"
    item_id, reason = connection.execute(first).fetchone()
    return f"; {count} skipped, e.g. {brief(item_id)}: {reason}"


def collection_source(
    shards: Sequence[Shard],
    query_shards: Sequence[Shard],
    catalogue: Catalogue,
    settings: BuildSettings,
) -> CollectionSource:
    """Describe one collection of a generation by its shards.

    How the items are spread over the shards makes no difference to the generation.
    """
    codec = codec_of(settings.token_dtype, shards, query_shards)
    return CollectionSource(
        embedding_dim=shards[0].format.embedding_dim,
        codec=codec,
        parts=_parts(shards, catalogue, codec, settings.batch_size),
        skipped=[*catalogue.skipped(), *(entry for shard in shards for entry in shard.skipped)],
        count=sum(len(shard.array(ROWS)) for shard in shards),
    )


def _parts(
    shards: Sequence[Shard], catalogue: Catalogue, codec: TokenCodec, batch_size: int
) -> Iterator[PackedBatch]:
    """Yield the items of each batch of the input, independent of the shard boundaries.

    The rounding of a matrix product, and with it the centroid of a token, may depend on how many
    tokens are packed together.
    """
    for shard in shards:
        read = ShardItems(shard)
        ends = np.flatnonzero(np.diff(read.rows // batch_size)) + 1
        for places in np.split(np.arange(len(read.rows)), ends):
            if len(places) == 0:
                continue
            rows = read.rows[places]
            items = catalogue.items(range(int(rows[0]), int(rows[-1]) + 1))
            sources = [items[place] for place in (rows - rows[0]).tolist()]
            pairs = zip(sources, read.prepared(places), strict=True)
            yield read.packed(places, [stored_form(*pair) for pair in pairs], codec)
