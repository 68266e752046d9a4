"""Lines of a file that may be larger than memory, found by their first cell.

Microsoft's TSV tools write the offset of each line to a file beside it: ``features.lineidx`` beside
``features.tsv``. With it, only the first cell of each line is read to find the keys; without it,
the whole file is read once.
"""

from __future__ import annotations

import os
from collections.abc import Collection, Iterator
from pathlib import Path
from typing import BinaryIO

import numpy as np
import numpy.typing as npt

from aladin_network.errors import DataError
from aladin_training.data.fields import Place, readable

_MAX_KEY_BYTES = 1024
# A hundred regions of 2,054 numbers are 1.1 MB of base64; a longer line is no line of regions.
_MAX_LINE_BYTES = 2**26


class LineFile:
    """The lines of one file by key, which is the text before the first tab."""

    def __init__(self, path: Path) -> None:
        """Find every line; a ``.lineidx`` of the same name beside the file is used and checked."""
        self.path = path
        self._rows: dict[str, int] = {}
        lineidx = path.with_suffix(".lineidx")
        starts: list[int] = []
        with readable(path), path.open("rb") as file:
            size = os.fstat(file.fileno()).st_size
            if lineidx.is_file():
                starts = _read_lineidx(lineidx, path, file, size)
                found = _keys_at(path, file, starts)
            else:
                found = _scan(path, file, starts)
            for key in found:
                self._add(key)
        if not self._rows:
            raise DataError(path, None, "is empty")
        self._bounds: npt.NDArray[np.int64] = np.array([*starts, size], dtype=np.int64)

    @property
    def keys(self) -> Collection[str]:
        """The keys in the order of the lines."""
        return self._rows.keys()

    def place(self, key: str) -> Place:
        """Return where a key's line is, for errors."""
        return Place(self.path, self._rows[key] + 1, f"photo {key!r}")

    def read(self, key: str) -> list[bytes]:
        """Return the cells of a key's line, including the key."""
        row = self._rows[key]
        start, stop = (int(bound) for bound in self._bounds[row : row + 2])
        try:
            with self.path.open("rb") as file:
                line = os.pread(file.fileno(), stop - start, start)
        except OSError as error:
            raise self.place(key).error(error.strerror or "cannot be read") from error
        if len(line) < stop - start:
            raise self.place(key).error(f"expected {stop - start} bytes, found {len(line)}")
        line = line.rstrip(b"\r\n")
        if b"\n" in line:
            reason = f"{self.path.with_suffix('.lineidx').name} skips a line behind this one"
            raise self.place(key).error(reason)
        return line.split(b"\t")

    def _add(self, key: str) -> None:
        if key in self._rows:
            number = len(self._rows) + 1
            first = self._rows[key] + 1
            reason = f"the photo {key!r} repeats, it was first on line {first}"
            raise DataError(self.path, number, reason)
        self._rows[key] = len(self._rows)


def _read_lineidx(lineidx: Path, path: Path, file: BinaryIO, size: int) -> list[int]:
    """Read the offsets of the lines, and check that lines begin there."""
    starts: list[int] = []
    with lineidx.open("rb") as lines:
        for number, line in enumerate(lines, start=1):
            if not line.strip().isdigit():
                raise DataError(lineidx, number, f"expected a whole number, found {line[:20]!r}")
            start = int(line)
            at_begin = start == 0 if not starts else starts[-1] < start < size
            if not at_begin or (start > 0 and os.pread(file.fileno(), 1, start - 1) != b"\n"):
                reason = f"no line of {path.name} ({size} bytes) begins at byte {start}"
                raise DataError(lineidx, number, f"{reason}; delete the file if it is stale")
            starts.append(start)
    return starts


def _keys_at(path: Path, file: BinaryIO, starts: list[int]) -> Iterator[str]:
    for number, start in enumerate(starts, start=1):
        yield _key(path, number, os.pread(file.fileno(), _MAX_KEY_BYTES, start))


def _scan(path: Path, file: BinaryIO, starts: list[int]) -> Iterator[str]:
    """Read the whole file, recording the offset of each line."""
    position = 0
    while line := file.readline(_MAX_LINE_BYTES):
        number = len(starts) + 1
        if len(line) == _MAX_LINE_BYTES:
            raise DataError(path, number, f"has more than {_MAX_LINE_BYTES} bytes")
        starts.append(position)
        position += len(line)
        yield _key(path, number, line[:_MAX_KEY_BYTES])


def _key(path: Path, number: int, begin: bytes) -> str:
    key, tab, _ = begin.partition(b"\t")
    if not tab or not key.strip():
        reason = f"expected a photo's id and a tab, found {begin[:20]!r}"
        raise DataError(path, number, reason)
    try:
        return key.decode("utf-8")
    except UnicodeDecodeError:
        raise DataError(path, number, f"the id {key[:20]!r} is not UTF-8") from None
