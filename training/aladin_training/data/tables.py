"""Tables of photos: CSV, TSV and parquet.

CSV and TSV have a header, as open_clip reads them: ``filepath`` and ``title``. Parquet is the
format of the metadata of img2dataset and clip-retrieval.
"""

from __future__ import annotations

import csv
import math
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

from aladin_network.errors import DataError, brief
from aladin_network.photos.files import CAPTIONS, ID, PHOTO, SPLIT, PhotoFile, first_of
from aladin_training.data.fields import Place, Row, download_failed, readable
from aladin_training.data.records import (
    LocatedRecord,
    OnSkip,
    Record,
    Source,
    log_skipped,
    unusable,
)

# Only canonical spellings are numbers: "007" may be a code and "+1" a vote.
_INTEGER = re.compile(r"-?(0|[1-9][0-9]*)")
_DECIMAL = re.compile(r"-?(0|[1-9][0-9]*)(\.[0-9]+)?([eE][+-]?[0-9]+)?")
_MAX_INTEGER_DIGITS = 18  # always fits into the 64 bits that a filter compares
_BOOLEANS = {"true": True, "false": False}
_TEXT_COLUMNS = frozenset({*PHOTO, *CAPTIONS, *ID, SPLIT})

# Rows that are held as Python objects at a time.
_ROWS_A_BATCH = 1024


class Table(NamedTuple):
    """An open table that is read as a stream; its photos are relative to its folder."""

    file: Path
    columns: list[str]
    rows: Iterator[tuple[Place, dict[str, Any]]]


def read_table(source: Source) -> Iterator[LocatedRecord]:
    """Read photos from rows; consecutive rows of one photo add their captions to the first."""
    table = open_table(source.path, source.on_skip)
    column = first_of(PHOTO, table.columns)
    if column is None:
        raise DataError(
            table.file,
            None,
            f"expected a column of photos, one of {', '.join(PHOTO)}, "
            f"got the columns {', '.join(map(brief, table.columns))}",
        )
    folder = table.file.absolute().parent
    waiting: LocatedRecord | None = None
    for place, row in table.rows:
        if download_failed(row):
            continue
        try:
            entry = LocatedRecord(place, _record(row, column, folder, place))
            if waiting is not None and entry.record.uri == waiting.record.uri:
                waiting = _joined(waiting, entry)
                continue
        except DataError as error:
            split = row.get(SPLIT)
            source.on_skip(unusable(error, split if isinstance(split, str) else None))
            continue
        if waiting is not None:
            yield waiting
        waiting = entry
    if waiting is not None:
        yield waiting


def _record(row: dict[str, Any], column: str, folder: Path, place: Place) -> Record:
    uri = row[column]
    if not isinstance(uri, str) or not uri.strip():
        raise place.error(f"{column}: expected the path of a photo, got {brief(uri)}")
    known = Row(row, place)
    return Record(
        id=known.id or uri,
        photo=PhotoFile(folder / uri),
        uri=uri,
        captions=known.captions,
        split=known.split,
        metadata=known.metadata(column),
    )


def _joined(first: LocatedRecord, another: LocatedRecord) -> LocatedRecord:
    record, split = first.record, another.record.split
    if split != record.split:
        raise another.place.error(
            f"photo {brief(record.uri)} is in split {brief(split)} here, in {brief(record.split)} "
            "before"
        )
    captions = record.captions + another.record.captions
    return first._replace(record=replace(record, captions=captions))


def open_table(file: Path, on_skip: OnSkip = log_skipped) -> Table:
    """Open a table of one of the suffixes of `TABLES`."""
    return TABLES[file.suffix.lower()](file, on_skip)


def _open_delimited(file: Path, on_skip: OnSkip, delimiter: str) -> Table:
    """Open a table whose first line names the columns; metadata become numbers or truth values."""
    lines = _cells(file, delimiter, on_skip)
    place, columns = next(lines, (Place(file), []))
    if not columns:
        raise place.error("is empty, expected a header")
    repeated = next((name for name in columns if columns.count(name) > 1), None)
    if repeated is not None:
        raise place.error(f"names the column {brief(repeated)} more than once")
    return Table(file, columns, _rows(columns, lines, on_skip))


def _rows(
    columns: list[str], lines: Iterator[tuple[Place, list[str]]], on_skip: OnSkip
) -> Iterator[tuple[Place, dict[str, Any]]]:
    for place, cells in lines:
        if len(cells) != len(columns):
            reason = f"expected {len(columns)} cells, as in the header, got {len(cells)}"
            on_skip(unusable(place.error(reason)))
            continue
        yield (
            place,
            {
                name: (cell or None) if name in _TEXT_COLUMNS else _typed(cell)
                for name, cell in zip(columns, cells, strict=True)
            },
        )


def _typed(cell: str) -> Any:
    """Return the number or boolean that a cell contains, its text, or None if it is empty."""
    if _INTEGER.fullmatch(cell):
        return int(cell) if len(cell.lstrip("-")) <= _MAX_INTEGER_DIGITS else cell
    if _DECIMAL.fullmatch(cell) and math.isfinite(float(cell)):
        return float(cell)
    return _BOOLEANS.get(cell.lower(), cell or None)


def _cells(file: Path, delimiter: str, on_skip: OnSkip) -> Iterator[tuple[Place, list[str]]]:
    """Yield the cells of each line that is not blank; a quoted cell may hold line ends."""
    first = 1
    faults: list[DataError] = []
    try:
        with readable(file), file.open("rb") as raw:
            reader = csv.reader(_decoded(file, raw, faults), delimiter=delimiter, strict=True)
            for cells in reader:
                if faults:
                    on_skip(unusable(faults[0]))
                    faults.clear()
                elif cells:
                    yield Place(file, first), cells
                first = reader.line_num + 1
    except csv.Error as error:
        reason = f"not a line of a table ({error}); a quote inside of a quoted cell is doubled"
        raise DataError(file, first, reason) from None


def _decoded(file: Path, raw: Iterable[bytes], faults: list[DataError]) -> Iterator[str]:
    # Line by line, so that the number of a line that is not UTF-8 is known.
    for number, line in enumerate(raw, start=1):
        encoding = "utf-8-sig" if number == 1 else "utf-8"
        try:
            yield line.decode(encoding)
        except UnicodeDecodeError as error:
            reason = f"not UTF-8 at byte {error.start + 1} of the line"
            faults.append(DataError(file, number, reason))
            if number == 1:
                raise faults[0] from None
            yield line.decode(encoding, "replace")


def open_parquet(file: Path, on_skip: OnSkip) -> Table:  # noqa: ARG001
    """Open a parquet file; its rows are read in batches."""
    from pyarrow import ArrowException
    from pyarrow.parquet import read_schema

    try:
        columns = [str(name) for name in read_schema(file).names]
    except (ArrowException, OSError) as error:
        raise _unreadable(file, error) from error
    return Table(file, columns, _parquet_rows(file))


def _parquet_rows(file: Path) -> Iterator[tuple[Place, dict[str, Any]]]:
    from pyarrow import ArrowException
    from pyarrow.parquet import ParquetFile

    number = 0
    try:
        with ParquetFile(file) as parquet:
            for batch in parquet.iter_batches(_ROWS_A_BATCH):
                rows: list[dict[str, Any]] = batch.to_pylist()
                for row in rows:
                    number += 1
                    yield Place(file, part=f"row {number}"), row
    except (ArrowException, OSError) as error:
        raise _unreadable(file, error) from error


def _unreadable(file: Path, error: Exception) -> DataError:
    return DataError(file, None, f"cannot be read as parquet ({error})")


TABLES: Mapping[str, Callable[[Path, OnSkip], Table]] = {
    ".csv": partial(_open_delimited, delimiter=","),
    ".tsv": partial(_open_delimited, delimiter="\t"),
    ".parquet": open_parquet,
}
