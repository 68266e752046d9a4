"""Items as rows of the metadata's parquet: reading, writing and streaming.

Rows are read and written a few thousand at a time. pyarrow has no type annotations; everything that
this module returns is typed.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any

import numpy as np

from aladin_index.encode.encoded import PackedBatch
from aladin_index.encode.source_items import PhotoPlaces, check_id, cut_text
from aladin_index.exchange.arrays import check_rows
from aladin_index.exchange.layout import CollectionLayout
from aladin_index.format.skipped import SkippedItem
from aladin_index.items.tables import StoredItem
from aladin_network.errors import DataError, InputError, brief
from aladin_network.photos.files import CAPTIONS, PHOTO, first_of, metadata_of
from aladin_network.types import Target

logger = logging.getLogger(__name__)

# Columns of an export, with the names of their Arrow types. The first two are those of
# clip-retrieval; `file` is the location of a photo's bytes, with `offset` and `length` if it lies
# in a larger file; `boxes` are those of its regions, in the form of `aladin_index.items.tables`;
# `file_state` is the state of the file when it was encoded, and `fingerprint` tells its copies.
COLUMNS: dict[Target, dict[str, str]] = {
    "images": {
        "image_path": "string",
        "caption": "string",
        "id": "string",
        "file": "string",
        "offset": "int64",
        "length": "int64",
        "width_px": "int32",
        "height_px": "int32",
        "boxes": "binary",
        "file_state": "string",
        "fingerprint": "string",
        "metadata": "string",
    },
    "texts": {
        "image_id": "string",
        "caption": "string",
        "id": "string",
        "metadata": "string",
    },
}

# Where a column has another name than the item's field.
_COLUMN_OF = {"uri": "image_path", "path": "file", "text": "caption"}
_ROWS_AT_A_TIME = 4096
# Columns that may contain the id.
_NAMING = ("id", *PHOTO, "key")


def exported_row(item: StoredItem) -> dict[str, Any]:
    """Return all data of an item, with at least the columns of its collection."""
    row: dict[str, Any] = {
        _COLUMN_OF.get(name, name): value for name, value in item._asdict().items()
    }
    return row | {"metadata": json.dumps(item.metadata, ensure_ascii=False)}


def imported_item(row: Mapping[str, Any]) -> StoredItem:
    """Return the item of an exported row; rows are numbered as they are written."""
    columns = {name: _COLUMN_OF.get(name, name) for name in StoredItem._fields}
    values: dict[str, Any] = {name: row.get(column) for name, column in columns.items()}
    values |= {"row": 0, "offset": row.get("offset", 0), "metadata": json.loads(row["metadata"])}
    return StoredItem(**values)


def foreign_item(row: Mapping[str, Any], number: int, target: Target) -> StoredItem:
    """Return the item of a row that clip-retrieval or another program wrote.

    Its id is the column ``id``, else the photo's path as written (``image_path``), else ``key``,
    else its number. A text whose row names a photo is a caption of it, with the photo's id and
    ``#0``. Columns without a meaning of their own are metadata. Photos with relative paths are not
    shown, because their base folder is unknown.
    """
    present = [name for name, value in row.items() if value not in (None, "")]
    photo, caption = first_of(PHOTO, present), first_of(CAPTIONS, present)
    named_by = first_of(("id", *PHOTO, "key"), present)
    item_id = str(number if named_by is None else row[named_by])
    uri = None if photo is None else str(row[photo])
    is_text = target == "texts"
    of_photo = is_text and photo is not None
    text, cut = (None, None) if caption is None else cut_text(str(row[caption]), target)
    if cut is not None:
        logger.warning("row %d: %s", number, cut)
    return StoredItem(
        row=0,
        id=f"{item_id}#0" if of_photo else item_id,
        uri=None if is_text else uri or item_id,
        path=uri if uri is not None and not is_text and Path(uri).is_absolute() else None,
        text=text,
        image_id=item_id if of_photo else None,
        width_px=None,
        height_px=None,
        metadata=metadata_of(row, [photo, caption, named_by]),
    )


class RowWriter:
    """Writes the items of one part."""

    def __init__(self, path: Path, target: Target) -> None:
        import pyarrow
        from pyarrow.parquet import ParquetWriter

        fields = [(name, pyarrow.type_for_alias(kind)) for name, kind in COLUMNS[target].items()]
        self._schema: Any = pyarrow.schema(fields)
        self._file: Any = ParquetWriter(path, self._schema)

    def append(self, items: Sequence[StoredItem]) -> None:
        """Write the next items."""
        import pyarrow

        rows = [exported_row(item) for item in items]
        self._file.write_table(pyarrow.Table.from_pylist(rows, schema=self._schema))

    def __enter__(self) -> RowWriter:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._file.close()


def count_rows(path: Path) -> int:
    import pyarrow
    from pyarrow.parquet import read_metadata

    try:
        return int(read_metadata(path).num_rows)
    except (pyarrow.ArrowException, OSError) as error:
        raise _unreadable(path, error) from error


def read_rows(
    path: Path, rows_at_a_time: int, columns: Sequence[str] | None = None
) -> Iterator[list[dict[str, Any]]]:
    """Read the rows of a file in batches."""
    import pyarrow
    from pyarrow.parquet import ParquetFile

    try:
        with ParquetFile(path) as file:
            names = [str(name) for name in file.schema_arrow.names]
            wanted = [name for name in names if columns is None or name in columns]
            for batch in file.iter_batches(rows_at_a_time, columns=wanted):
                yield batch.to_pylist()
    except (pyarrow.ArrowException, OSError) as error:
        raise _unreadable(path, error) from error


def _unreadable(path: Path, error: Exception) -> DataError:
    return DataError(path, None, f"cannot be read as parquet ({error})")


class ItemSource:
    """Reads the metadata of the rows; without metadata, rows have only a number."""

    def __init__(
        self, layout: CollectionLayout, names: Sequence[str], rows: Sequence[int], *, own: bool
    ) -> None:
        self._layout = layout
        self._rows = dict(zip(names, rows, strict=True))
        self._firsts = dict(zip(names, np.cumsum([0, *rows[:-1]]).tolist(), strict=True))
        self._own = own
        self.has_metadata = own or layout.metadata("").parent.is_dir()
        for name, count in self._rows.items() if self.has_metadata else ():
            path = layout.metadata(name)
            check_rows(path, count_rows(path), count, layout.embeddings(name))

    def chunks(self, part: str, columns: Sequence[str] | None = None) -> Iterator[list[StoredItem]]:
        """Yield the items of a part in chunks of some thousand."""
        target, number = self._layout.target, self._firsts[part]
        if not self.has_metadata:
            numbers = range(number, number + self._rows[part])
            for start in range(0, len(numbers), _ROWS_AT_A_TIME):
                chosen = numbers[start : start + _ROWS_AT_A_TIME]
                yield [foreign_item({}, each, target) for each in chosen]
            return
        for rows in read_rows(self._layout.metadata(part), _ROWS_AT_A_TIME, columns):
            if self._own:
                yield [imported_item(row) for row in rows]
            else:
                yield [foreign_item(row, each, target) for each, row in enumerate(rows, number)]
            number += len(rows)

    def check_ids(self) -> None:
        """Reject duplicate and invalid ids; holds eight bytes of each in memory."""
        hashes = np.fromiter(self._checked_hashes(), dtype=np.int64)
        values, counts = np.unique(hashes, return_counts=True)
        doubtful = set(values[counts > 1].tolist())
        first: dict[str, int] = {}
        for number, item_id in enumerate(self._ids() if doubtful else ()):
            if hash(item_id) not in doubtful:
                continue
            if item_id in first:
                folder: Path = self._layout.metadata("").parent
                raise InputError(
                    f"{folder}: id {brief(item_id)} repeats, row {number} after row "
                    f"{first[item_id]}"
                )
            first[item_id] = number

    def _checked_hashes(self) -> Iterator[int]:
        for item_id in self._ids():
            check_id(item_id, self._layout.target)
            yield hash(item_id)

    def _ids(self) -> Iterator[str]:
        columns = None if self._own else _NAMING
        for part in self._rows:
            for items in self.chunks(part, columns):
                yield from (item.id for item in items)


def usable_part(
    part: PackedBatch, skipped: list[SkippedItem], fault: Callable[[StoredItem], str | None]
) -> PackedBatch:
    """Leave out the items that have a fault, with all that belongs to them."""
    faults = [fault(item) for item in part.items]
    if not any(faults):
        return part
    kept = np.array([reason is None for reason in faults])
    skipped += [
        SkippedItem(item.id, reason)
        for item, reason in zip(part.items, faults, strict=True)
        if reason is not None
    ]
    return part.take(kept)


def caption_fault(item: StoredItem) -> str | None:
    """Refuse a text that has no caption: its embedding is of nothing."""
    return None if item.text else "has no caption"


def no_fault(item: StoredItem) -> str | None:  # noqa: ARG001
    """Accept every item."""
    return None


def place_fault(places: PhotoPlaces, item: StoredItem) -> str | None:
    """Refuse a photo outside of the root; one that was uploaded comes with the encodings."""
    if item.path is None or not Path(item.path).is_absolute():
        return None
    return places.fault(Path(item.path), item.path)
