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

from aladin_index.building.shards import EMBEDDINGS, LENGTHS, ROWS, SIZES_PX, Shard
from aladin_index.encode.read_ahead import StageSeconds
from aladin_index.encode.source_items import (
    ImageItem,
    SourceItem,
    check_item,
    file_state,
    item_from_json,
    item_json,
    place_of,
    stored_form,
)
from aladin_index.format.layout import NEW_CATALOGUE
from aladin_index.format.skipped import SkippedItem
from aladin_index.generations.collection_writer import CollectionSource, EncodedPart
from aladin_index.settings import MAX_FILTER_FIELDS, BuildSettings
from aladin_index.tokens.codec import TokenCodec
from aladin_index.tokens.store import codec_for
from aladin_network.errors import InputError, brief
from aladin_network.photos.files import printable
from aladin_network.types import Progress, Target, TokenDtype

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

    def __init__(self, file: Path, target: Target) -> None:
        """Open a file of `write_catalogue`.

        Args:
            file: File of the database.
            target: Whether the database holds images or texts.
        """
        self._target: Target = target
        self._connection = sqlite3.connect(f"{file.absolute().as_uri()}?mode=rw", uri=True)
        self._connection.execute("PRAGMA journal_mode = OFF")
        self._connection.execute("PRAGMA synchronous = OFF")
        self.count = int(self._connection.execute("SELECT COUNT(*) FROM items").fetchone()[0])

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

    def skipped(self, rows: range) -> list[SkippedItem]:
        """Read what the source skipped among some consecutive items, or after the last one."""
        end = rows.stop + (rows.stop == self.count)
        statement = "SELECT id, reason FROM skipped WHERE row >= ? AND row < ? ORDER BY number"
        return [
            SkippedItem(*line) for line in self._connection.execute(statement, (rows.start, end))
        ]

    def fingerprint(self, rows: range) -> str:
        """Hash the data of some consecutive items, and the state of their files.

        A file's state is its length and the time of its last change. It is kept for `items`, since
        the photos are read later: one that is changed meanwhile has another state by then.
        """
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
        for item_id, reason in self.skipped(rows):
            digest.update(f"left out {item_id} {reason}\n".encode())
        return digest.hexdigest()

    def close(self) -> None:
        """Close the database."""
        self._connection.close()


@contextmanager
def listed(
    root: Path,
    sources: Mapping[Target, Iterable[SourceItem | SkippedItem]],
    settings: BuildSettings,
    progress: Progress,
    seconds: StageSeconds,
) -> Generator[dict[Target, Catalogue]]:
    """Read the sources of a build into catalogues, which exist inside the block.

    Args:
        root: Index folder; the caller must be its only builder.
        sources: Items of each collection, see `write_catalogue`.
        settings: Settings of the build.
        progress: Progress, advanced by the items.
        seconds: Times by stage, to which the time of the stage "list" is added.
    """
    folder = root / NEW_CATALOGUE
    folder.mkdir()
    try:
        with ExitStack() as opened:
            catalogues: dict[Target, Catalogue] = {}
            for target, items in sources.items():
                file = folder / f"{target}.sqlite"
                with seconds.measure("list"):
                    write_catalogue(file, target, items, progress, settings)
                catalogues[target] = opened.enter_context(closing(Catalogue(file, target)))
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
    """Read a whole source; items that no index could store are skipped.

    Args:
        file: File of the new database.
        target: Whether the items are images or texts; named in errors.
        items: Items, read once and a few at a time in memory, including those that the source
            skipped.
        progress: Progress, advanced by the items.
        settings: Settings with the limits of metadata, and the fields that are indexed for filters.

    Raises:
        InputError: If there is no item, too many fields would be indexed, or, if the settings are
            strict, an item cannot be used.
        sqlite3.Error: If the disk is full, or cannot be written.
    """
    progress.start(None, _UNITS[target])
    connection = sqlite3.connect(file)
    try:
        # No journal: a build that is interrupted while reading starts again.
        connection.execute("PRAGMA journal_mode = OFF")
        connection.execute("PRAGMA synchronous = OFF")
        connection.execute(f"PRAGMA cache_size = -{_CACHE_KIB}")
        connection.executescript(_SCHEMA)
        count, writer = 0, _Writer(connection, target, settings)
        for item in items:
            if writer.write(item):
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
        self._row = self._seen = 0

    def write(self, item: SourceItem | SkippedItem) -> bool:
        """Write an item; return whether it can be used."""
        if not isinstance(item, SkippedItem):
            self._seen += 1
            reason = self._insert(item)
            if reason is None:
                self._row += 1
                return True
            item = SkippedItem(printable(item.id) or f"item {self._seen}", reason)
        if self._settings.strict:
            raise item.refused()
        statement = "INSERT INTO skipped (row, id, reason) VALUES (?, ?, ?)"
        self._connection.execute(statement, (self._row, *item))
        return False

    def _insert(self, item: SourceItem) -> str | None:
        """Insert an item, or return why it cannot be."""
        target, settings = self._target, self._settings
        try:
            check_item(item, target, settings.metadata)
        except InputError as error:
            return str(error)
        path = str(item.path) if isinstance(item, ImageItem) else None
        line = (self._row, item.id, path, item_json(item))
        statement = "INSERT OR IGNORE INTO items VALUES (?, ?, ?, ?)"
        if not self._connection.execute(statement, line).rowcount:
            find = "SELECT row, item FROM items WHERE id = ?"
            row, known = self._connection.execute(find, (item.id,)).fetchone()
            first = place_of(item_from_json(known, target), row)
            again = place_of(item, self._seen - 1)
            return f"{target}: id {brief(item.id)} repeats, {again} after {first}"
        if settings.filter_fields is None:
            self._fields.update(item.metadata)
            if len(self._fields) > MAX_FILTER_FIELDS:
                raise InputError(
                    f"{target}: expected at most {MAX_FILTER_FIELDS} distinct metadata fields, "
                    f"got more by item {brief(item.id)}; `aladin index build --filter-fields` "
                    "names those to filter by"
                )
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
    dtype: TokenDtype,
    batch_size: int,
) -> CollectionSource:
    """Describe one collection of a generation by its shards.

    How the items are spread over the shards makes no difference to the generation.

    Args:
        shards: Shards in order; at least one.
        query_shards: Shards of the other collection, whose tokens resemble those of queries; may be
            empty.
        catalogue: Catalogue of the items.
        dtype: Form in which the tokens are stored.
        batch_size: Number of items that went through the network together.

    Raises:
        ConfigError: If a codebook is to be made from no tokens.
    """
    codec = shards[0].format.codec
    if codec.dtype != dtype:
        codec = codec_for(
            dtype,
            [shard.tokens().values for shard in shards],
            [shard.tokens().values for shard in query_shards],
        )
    return CollectionSource(
        embedding_dim=shards[0].format.embedding_dim,
        codec=codec,
        parts=_parts(shards, catalogue, codec, batch_size),
        skipped=[entry for shard in shards for entry in shard.skipped],
        count=sum(len(shard.array(ROWS)) for shard in shards),
    )


def _parts(
    shards: Sequence[Shard], catalogue: Catalogue, codec: TokenCodec, batch_size: int
) -> Iterator[EncodedPart]:
    """Yield one part per batch of the input, independent of the shard boundaries.

    The rounding of a matrix product, and with it the centroid of a token, may depend on how many
    tokens are packed together.
    """
    for shard in shards:
        kept = shard.format.codec
        rows, sizes_px, boxes = shard.array(ROWS), shard.array(SIZES_PX), shard.boxes()
        embeddings, lengths, tokens = shard.array(EMBEDDINGS), shard.array(LENGTHS), shard.tokens()
        metadata = shard.metadata()
        offsets = np.concatenate([[0], np.cumsum(lengths)])
        batches = rows // batch_size
        ends = [*(np.flatnonzero(np.diff(batches)) + 1).tolist(), len(rows)] if len(rows) else []
        start = 0
        for end in ends:
            packed = tokens.take(slice(int(offsets[start]), int(offsets[end])))
            sizes = [(w, h) if w else None for w, h in sizes_px[start:end].tolist()]
            if codec is not kept:
                packed = codec.pack(kept.unpack(packed))
            first = int(rows[start])
            items = catalogue.items(range(first, int(rows[end - 1]) + 1))
            places = (rows[start:end] - first).tolist()
            yield EncodedPart(
                items=[
                    stored_form(items[place], size_px, of_item, metadata.get(first + place))
                    for place, size_px, of_item in zip(places, sizes, boxes[start:end], strict=True)
                ],
                embeddings=embeddings[start:end],
                tokens=packed,
                lengths=lengths[start:end],
            )
            start = end
