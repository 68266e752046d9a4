"""Rows of a table as photos, whatever file the table is in."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

from aladin.columns import PHOTO, first_of
from aladin.errors import DataError
from aladin.photo_file import PhotoFile
from training.data.columns import describe, has_failed
from training.data.fields import Place
from training.data.records import Entry, Record


class Table(NamedTuple):
    """An open table, streamed.

    Attributes:
        file: that paths of photos are relative to.
        columns: names of the columns.
        rows: each with its place; values by column.
    """

    file: Path
    columns: list[str]
    rows: Iterator[tuple[Place, dict[str, Any]]]


def table_entries(table: Table) -> Iterator[Entry]:
    """Read photos from rows; those of one photo that follow one another add their captions.

    The first of a photo's rows gives its id and metadata. Rows of downloads that failed are
    skipped.

    Raises:
        DataError: the table has no column of photos, or a row cannot be used.
    """
    column = first_of(PHOTO, table.columns)
    if column is None:
        raise DataError(
            table.file,
            None,
            f"expected a column of photos, one of {', '.join(PHOTO)}, "
            f"got the columns {', '.join(map(repr, table.columns))}",
        )
    folder = table.file.absolute().parent
    waiting: Entry | None = None
    for place, row in table.rows:
        if has_failed(row):
            continue
        entry = Entry(place, _record(row, column, folder, place))
        if waiting is not None and entry.record.uri == waiting.record.uri:
            waiting = _joined(waiting, entry)
            continue
        if waiting is not None:
            yield waiting
        waiting = entry
    if waiting is not None:
        yield waiting


def _record(row: dict[str, Any], column: str, folder: Path, place: Place) -> Record:
    uri = row[column]
    if not isinstance(uri, str) or not uri.strip():
        raise place.error(f"{column}: expected the path of a photo, got {uri!r}")
    described = describe(row, place, column)
    return Record(
        id=described.id or uri,
        photo=PhotoFile(folder / uri),
        uri=uri,
        captions=described.captions,
        split=described.split,
        metadata=described.metadata,
    )


def _joined(first: Entry, another: Entry) -> Entry:
    record, split = first.record, another.record.split
    if split != record.split:
        reason = f"photo {record.uri!r} is in split {split!r} here, in {record.split!r} before"
        raise another.place.error(reason)
    captions = record.captions + another.record.captions
    return first._replace(record=replace(record, captions=captions))
