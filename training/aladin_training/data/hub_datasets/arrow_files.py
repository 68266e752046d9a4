"""Arrow files, mapped into memory: rows, and the places of their photos in the file.

`datasets` writes uncompressed Arrow streams, in which the bytes of a photo are consecutive. They
are read in place, like the members of a tar; nothing is copied or unpacked.
"""

from __future__ import annotations

from collections.abc import Generator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from aladin_network.errors import DataError


class StoredPhoto(NamedTuple):
    """A photo of a row.

    Attributes:
        offset: Position of its first byte in the Arrow file, or None if its bytes are elsewhere.
        length: Length in bytes.
        path: Path that the row names, or None.
    """

    offset: int | None
    length: int
    path: str | None


class Rows(NamedTuple):
    """Consecutive rows.

    Attributes:
        values: Values of the requested columns, by column.
        photos: Photo of each row; empty if none were requested.
    """

    values: list[dict[str, Any]]
    photos: list[StoredPhoto]


def read_schema(file: Path) -> Any:
    """Return the columns of a file and their types.

    Raises:
        DataError: If it is missing, or no Arrow stream.
    """
    with _opened(file) as (reader, _):
        return reader.schema


def count_rows(file: Path) -> int:
    """Count the rows of a file; only the headers of its batches are read.

    Raises:
        DataError: If it is missing, damaged or no Arrow stream.
    """
    with _opened(file) as (reader, _):
        return sum(batch.num_rows for batch in reader)


def read_rows(file: Path, names: Sequence[str], photo: str | None) -> Generator[Rows]:
    """Read the rows of a file, batch by batch.

    Args:
        file: Arrow file.
        names: Columns to return.
        photo: Column of photos, or None.

    Raises:
        DataError: If the file is missing, damaged or no Arrow stream, or its photos are compressed.
    """
    with _opened(file) as (reader, whole):
        for batch in reader:
            photos = [] if photo is None else _photos(file, whole, batch.column(photo))
            # pyarrow gives one empty mapping a row only if there is a column.
            values = batch.select(list(names)).to_pylist() if names else [{}] * batch.num_rows
            yield Rows(values, photos)


@contextmanager
def _opened(file: Path) -> Generator[tuple[Any, Any]]:
    try:
        with pa.memory_map(str(file)) as mapped:
            whole = mapped.read_buffer()
            mapped.seek(0)
            with pa.ipc.open_stream(mapped) as reader:
                yield reader, whole
    except (pa.ArrowException, OSError) as error:
        raise DataError(file, None, f"cannot be read as an Arrow stream ({error})") from error


def _photos(file: Path, whole: Any, column: Any) -> list[StoredPhoto]:
    if pa.types.is_struct(column.type):
        # `flatten` rather than `field`: it makes the parts of an absent photo absent, too.
        parts = dict(zip([part.name for part in column.type], column.flatten(), strict=True))
        paths = parts["path"].to_pylist() if "path" in parts else [None] * len(column)
        return [
            StoredPhoto(offset, length, path)
            for (offset, length), path in zip(
                _spans(file, whole, parts["bytes"]), paths, strict=True
            )
        ]
    if pa.types.is_string(column.type) or pa.types.is_large_string(column.type):
        return [StoredPhoto(None, 0, path) for path in column.to_pylist()]
    return [StoredPhoto(*span, None) for span in _spans(file, whole, column)]


def _spans(file: Path, whole: Any, values: Any) -> list[tuple[int | None, int]]:
    """Return offset and length of each value, or None and 0 for an absent one."""
    _, offsets, content = values.buffers()
    width = np.int64 if pa.types.is_large_binary(values.type) else np.int32
    ends = np.frombuffer(offsets, dtype=width)[values.offset : values.offset + len(values) + 1]
    if content is None or not len(values) or ends[0] == ends[-1]:
        return [(None, 0)] * len(values)
    start = content.address - whole.address
    if start < 0 or start + int(ends[-1]) > whole.size:
        reason = "its batches are compressed, so that photos cannot be read in place"
        raise DataError(file, None, f"{reason}; save the data set anew with save_to_disk")
    present = values.is_valid().to_numpy(zero_copy_only=False)
    return [
        (start + int(ends[row]), int(ends[row + 1] - ends[row])) if present[row] else (None, 0)
        for row in range(len(values))
    ]
