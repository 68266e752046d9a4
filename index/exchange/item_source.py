"""The items of one side of a folder of encodings, streamed from its metadata."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np

from aladin.columns import PHOTO
from aladin.errors import InputError
from index.building.source_items import check_id
from index.exchange.checks import check_rows
from index.exchange.item_rows import foreign_item, imported_item
from index.exchange.layout import SideLayout
from index.exchange.rows_file import count_rows, read_rows
from index.items.tables import StoredItem

_ROWS_AT_A_TIME = 4096
# Columns that an id may come from.
_NAMING = ("id", *PHOTO, "key")


class ItemSource:
    """Reads what the metadata says of the rows; where there is none, rows have but a number."""

    def __init__(
        self, layout: SideLayout, names: Sequence[str], rows: Sequence[int], *, own: bool
    ) -> None:
        """Compare the metadata's length with that of the embeddings.

        Args:
            layout: of the side.
            names: of its parts.
            rows: of embeddings of each part.
            own: whether `index.exchange.exporter` wrote the metadata, or another program.

        Raises:
            DataError: a part's metadata is missing, no parquet, or out of step.
        """
        self._layout = layout
        self._rows = dict(zip(names, rows, strict=True))
        self._firsts = dict(zip(names, np.cumsum([0, *rows[:-1]]).tolist(), strict=True))
        self._own = own
        self.has_metadata = own or layout.metadata("").parent.is_dir()
        for name, count in self._rows.items() if self.has_metadata else ():
            path = layout.metadata(name)
            check_rows(path, count_rows(path), count, layout.embeddings(name))

    def chunks(self, part: str, columns: Sequence[str] | None = None) -> Iterator[list[StoredItem]]:
        """Yield the items of a part, some thousand at a time.

        Args:
            part: its name.
            columns: of another program's metadata that are read; None: all.

        Raises:
            DataError: the metadata is damaged.
        """
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
        """Refuse ids that repeat or cannot be asked for; eight bytes of each are held in memory.

        Raises:
            InputError: two rows have one id, or one has what `check_id` refuses.
        """
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
                    f"{folder}: id {item_id!r} repeats, row {number} after row {first[item_id]}"
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
