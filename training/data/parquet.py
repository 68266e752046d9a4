"""Parquet: img2dataset's and clip-retrieval's metadata, and tables like them."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from aladin.errors import DataError
from training.data.fields import Place
from training.data.table import Table

# Rows that are in memory at once, as Python objects.
_ROWS_A_BATCH = 1024


def open_parquet(file: Path) -> Table:
    """Open a parquet file; its rows are read some of a row group at a time.

    Raises:
        DataError: not parquet; while reading, damaged.
    """
    from pyarrow import ArrowException
    from pyarrow.parquet import read_schema

    try:
        columns = [str(name) for name in read_schema(file).names]
    except (ArrowException, OSError) as error:
        raise _unreadable(file, error) from error
    return Table(file, columns, _rows(file))


def _rows(file: Path) -> Iterator[tuple[Place, dict[str, Any]]]:
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
