"""The metadata's parquet: written and read a few thousand rows at a time.

pyarrow has no types of its own to check against; what leaves this module is typed.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any

from aladin.errors import DataError
from index.exchange.item_rows import COLUMNS, exported_row
from index.items.tables import StoredItem
from index.settings import Target


class RowWriter:
    """Writes the items of one part."""

    def __init__(self, path: Path, target: Target) -> None:
        """Begin a file.

        Args:
            path: of the new file.
            target: what the items are.
        """
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
        """Return itself."""
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Complete the file."""
        self._file.close()


def count_rows(path: Path) -> int:
    """Return the number of rows of a file.

    Raises:
        DataError: not parquet.
    """
    import pyarrow
    from pyarrow.parquet import read_metadata

    try:
        return int(read_metadata(path).num_rows)
    except (pyarrow.ArrowException, OSError) as error:
        raise _unreadable(path, error) from error


def read_rows(
    path: Path, rows_at_a_time: int, columns: Sequence[str] | None = None
) -> Iterator[list[dict[str, Any]]]:
    """Read the rows of a file, some at a time.

    Args:
        path: of the file.
        rows_at_a_time: at most.
        columns: to be read, those that the file has; None: all.

    Raises:
        DataError: not parquet, or damaged.
    """
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
