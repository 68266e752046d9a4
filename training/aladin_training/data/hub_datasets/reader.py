"""Photos and texts of a data set of `datasets`, row by row."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

from aladin_network.photos.files import SPLIT, PhotoFile, metadata_of
from aladin_training.data.fields import Place, parse_captions_value, parse_word
from aladin_training.data.hub_datasets.arrow_files import StoredPhoto, read_rows, read_schema
from aladin_training.data.hub_datasets.columns import holds_bytes
from aladin_training.data.hub_datasets.source import DatasetTable, open_tables
from aladin_training.data.records import LocatedRecord, OnSkip, Record, SkippedPhoto, log_skipped


def read_dataset(source: Path, on_skip: OnSkip = log_skipped) -> Iterator[LocatedRecord]:
    """Read the photos of a data set; it is opened at once.

    Consecutive rows of one id, or of one file, are one photo with several captions.

    Args:
        source: Folder of ``save_to_disk``, or ``datasets:NAME``.
        on_skip: Called with each row whose photo is missing.

    Raises:
        ConfigError: If `datasets` is not installed.
        DataError: If the data set cannot be opened, or has no column of photos; while reading, if
            a row cannot be used.
    """
    tables = photo_tables(source)
    return join_rows(entry for table in tables for entry in read_table(table, on_skip))


def photo_tables(source: Path) -> list[DatasetTable]:
    """Open a data set of photos.

    Raises:
        ConfigError: If `datasets` is not installed.
        DataError: If the data set cannot be opened, or has no column of photos.
    """
    tables = open_tables(source)
    for table in tables:
        if table.columns.photo is None:
            reason = f"expected a column of photos, got the columns {table.columns.listed}"
            raise Place(source).error(f"{reason}; name it with image=COLUMN")
    return tables


def join_rows(entries: Iterator[LocatedRecord]) -> Iterator[LocatedRecord]:
    """Join consecutive rows of one photo; the first provides its metadata.

    Raises:
        DataError: If the rows of a photo are in different splits.
    """
    waiting: LocatedRecord | None = None
    for entry in entries:
        if waiting is not None and entry.record.id == waiting.record.id:
            record, split = waiting.record, entry.record.split
            if split != record.split:
                reason = f"photo {record.id!r} is in split {split!r} here, in {record.split!r}"
                raise entry.place.error(f"{reason} before")
            captions = record.captions + entry.record.captions
            waiting = waiting._replace(record=replace(record, captions=captions))
            continue
        if waiting is not None:
            yield waiting
        waiting = entry
    if waiting is not None:
        yield waiting


def read_table(table: DatasetTable, on_skip: OnSkip = log_skipped) -> Iterator[LocatedRecord]:
    """Read the photos of one Arrow file, one for each row.

    Args:
        table: Table with a column of photos.
        on_skip: Called with each row whose photo is missing, or not on this machine.

    Raises:
        DataError: If the file is damaged, or a row cannot be used.
    """
    for row, place, values, photo in _rows(table):
        split = _split(table, values, place)
        name = str(row) if table.split is None else f"{table.split}/{row}"
        if photo is None or (photo.offset is None and photo.path is None):
            on_skip(SkippedPhoto(name, "the row has no photo", split))
            continue
        if photo.offset is not None:
            file = PhotoFile(table.file, photo.offset, photo.length)
        elif "://" in str(photo.path) or "::" in str(photo.path):
            reason = "the photo is not on this machine; save_to_disk embeds the photos"
            on_skip(SkippedPhoto(name, reason, split))
            continue
        else:
            file, name = PhotoFile(table.root / str(photo.path)), str(photo.path)
        identity = table.columns.id
        given = None if identity is None else values.get(identity)
        record = Record(
            id=name if given is None else parse_word(given, str(identity), place),
            photo=file,
            uri=name,
            captions=_captions(table, values, place),
            split=split,
            metadata=_metadata(table, values),
        )
        yield LocatedRecord(place if table.columns.captions else _without(table, place), record)


def read_text_rows(table: DatasetTable) -> Iterator[tuple[Place, Record]]:
    """Read the rows of a table of texts, as records without a photo.

    Args:
        table: Table without a column of photos.

    Raises:
        DataError: If the file is damaged, or a row cannot be used.
    """
    for row, place, values, _ in _rows(table):
        identity = table.columns.id
        given = None if identity is None else values.get(identity)
        name = str(row) if table.split is None else f"{table.split}/{row}"
        yield (
            place,
            Record(
                id=name if given is None else parse_word(given, str(identity), place),
                photo=PhotoFile(table.file),
                uri=name,
                captions=_captions(table, values, place),
                split=_split(table, values, place),
                metadata=_metadata(table, values),
            ),
        )


def _rows(
    table: DatasetTable,
) -> Iterator[tuple[int, Place, dict[str, Any], StoredPhoto | None]]:
    schema = read_schema(table.file)
    names = [
        name
        for name, kind in zip(schema.names, schema.types, strict=True)
        if name != table.columns.photo and not holds_bytes(kind)
    ]
    row = table.first_row
    of_split = "" if table.split is None else f" of {table.split}"
    for rows in read_rows(table.file, names, table.columns.photo):
        for number, values in enumerate(rows.values):
            place = Place(table.file, part=f"row {row}{of_split}")
            yield row, place, values, rows.photos[number] if rows.photos else None
            row += 1


def _captions(table: DatasetTable, values: dict[str, Any], place: Place) -> tuple[str, ...]:
    return tuple(
        caption
        for column in table.columns.captions
        if values[column] is not None
        for caption in parse_captions_value(values[column], column, place)
    )


def _split(table: DatasetTable, values: dict[str, Any], place: Place) -> str | None:
    """Return the split of a row: that of a column of this name, or of the table."""
    value = values.get(SPLIT)
    if value is None or SPLIT in table.labels:
        return table.split
    split = parse_word(value, SPLIT, place)
    return {"restval": "train"}.get(split, split)


def _metadata(table: DatasetTable, values: dict[str, Any]) -> dict[str, Any]:
    taken = [*table.columns.captions, table.columns.id, SPLIT]
    metadata = metadata_of(values, taken)
    for column, names in table.labels.items():
        number = metadata.get(column)
        if isinstance(number, int) and 0 <= number < len(names):
            metadata[column] = names[number]
        elif column in metadata:  # -1 is the library's sign of no label
            del metadata[column]
    return metadata


def _without(table: DatasetTable, place: Place) -> Place:
    """Extend the place of a row without captions by how to name their column."""
    hint = f"name the column of captions with captions=COLUMN, of {table.columns.listed}"
    return place._replace(part=f"{place.part} ({hint})")
