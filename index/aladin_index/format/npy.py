"""Arrays on disk: written in parts, memory-mapped without being read."""

from __future__ import annotations

import ctypes
import mmap
import os
import sys
import threading
from collections.abc import Iterable
from pathlib import Path
from types import TracebackType
from typing import Any

import numpy as np
from numpy.typing import DTypeLike, NDArray

from aladin_network.errors import IndexCorruptError

# Linux's MADV_POPULATE_READ (5.14), which Python does not name.
_POPULATE_READ = 22


class NpyWriter:
    """Writes an array part by part; the number of rows is written at the end.

    Plain writes, not a writable memory map: a full disk is then an error, not a bus error. Until
    `close`, the file is no array that NumPy would read.
    """

    def __init__(self, path: Path, dtype: DTypeLike, row_shape: tuple[int, ...] = ()) -> None:
        self._path = path
        self._dtype = np.dtype(dtype)
        self._row_shape = row_shape
        self.rows = 0
        self._file = path.open("wb")
        # Every header reserves space for the number of rows: the header written at the end, over
        # this one, has the same length.
        self._header_bytes = self._write_header()

    def append(self, part: NDArray[Any]) -> None:
        """Write the next rows."""
        if part.shape[1:] != self._row_shape:
            expected = ("rows", *self._row_shape)
            raise ValueError(f"{self._path.name}: expected {expected}, got {part.shape}")
        self._file.write(np.ascontiguousarray(part, dtype=self._dtype).data)
        self.rows += part.shape[0]

    def close(self) -> None:
        """Complete the file; flushing it to disk is left to the publisher of its folder."""
        if self._file.closed:
            return
        try:
            self._file.seek(0)
            if self._write_header() != self._header_bytes:
                raise ValueError(f"{self._path.name}: {self.rows} rows do not fit into its header")
        finally:
            self._file.close()

    def __enter__(self) -> NpyWriter:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if error is None:
            self.close()
        else:
            self._file.close()

    def _write_header(self) -> int:
        header = {
            "descr": np.lib.format.dtype_to_descr(self._dtype),
            "fortran_order": False,
            "shape": (self.rows, *self._row_shape),
        }
        np.lib.format.write_array_header_1_0(self._file, header)
        return self._file.tell()


def write_npy(
    path: Path, dtype: DTypeLike, shape: tuple[int, ...], parts: Iterable[NDArray[Any]]
) -> None:
    """Write an array of a known shape part by part, holding one part in memory at a time."""
    with NpyWriter(path, dtype, shape[1:]) as writer:
        for part in parts:
            writer.append(part)
        if writer.rows != shape[0]:
            raise ValueError(f"{path.name}: {writer.rows} rows were written, expected {shape[0]}")


def map_npy(
    path: Path, dtype: DTypeLike, shape: tuple[int, ...], *, random: bool = False
) -> NDArray[Any]:
    """Map an array of a known shape without reading it.

    If rows are read at random positions, the kernel's read-ahead is turned off: with a cold page
    cache it costs about forty times what is needed.
    """
    try:
        # Copy on write: torch accepts the pages as a tensor without a warning, and no modification
        # can reach the file.
        array: NDArray[Any] = np.load(path, mmap_mode="c", allow_pickle=False)
    except (OSError, ValueError, EOFError) as error:
        raise IndexCorruptError(path, f"not a readable array ({error})") from error
    if array.dtype != np.dtype(dtype) or array.shape != shape:
        found = f"{array.dtype} {array.shape}"
        raise IndexCorruptError(path, f"expected {np.dtype(dtype)} {shape}, got {found}")
    if random and isinstance(array.base, mmap.mmap) and hasattr(mmap, "MADV_RANDOM"):
        array.base.madvise(mmap.MADV_RANDOM)
    return np.asarray(array)


def read_ahead(
    array: NDArray[Any], starts: Iterable[int] = (0,), stops: Iterable[int] | None = None
) -> None:
    """Ask the system to read rows of an array, all of them at a time; returns immediately.

    Scattered pages then arrive in a fifth of the time that they take one by one, and without the
    megabytes around each that the system reads for a page that is missed. Does nothing for an
    array that is not in a file. In memory, a call takes a microsecond for each range.
    """
    base: Any = array
    while isinstance(base, np.ndarray):
        base = base.base
    if not isinstance(base, mmap.mmap) or not hasattr(mmap, "MADV_WILLNEED") or not array.nbytes:
        return
    first = array.ctypes.data - np.frombuffer(base, dtype=np.uint8).ctypes.data
    row_bytes = array.strides[0]
    for start, stop in zip(starts, (len(array),) if stops is None else stops, strict=True):
        begin = first + start * row_bytes
        page = begin // mmap.PAGESIZE * mmap.PAGESIZE
        if stop > start:
            base.madvise(mmap.MADV_WILLNEED, page, first + stop * row_bytes - page)


def read_rows_ahead(array: NDArray[Any], rows: NDArray[np.int64]) -> None:
    """Ask the system to read some rows, see `read_ahead`; rows that do not exist are left out."""
    known = rows[(rows >= 0) & (rows < len(array))].tolist()
    read_ahead(array, known, [row + 1 for row in known])


def map_pages(arrays: Iterable[NDArray[Any]]) -> None:
    """Read arrays that `map_npy` mapped and map all their pages, in a thread of its own.

    The first search of a page then costs no fault, and the system drops such pages last. Does
    nothing where the system does not offer it, or for more than half of the machine's memory.
    """
    if sys.platform != "linux":
        return
    kept = [array for array in arrays if array.nbytes]
    memory = os.sysconf("SC_PHYS_PAGES") * mmap.PAGESIZE
    if sum(array.nbytes for array in kept) > memory // 2:
        return

    def run() -> None:
        # By ctypes, which lets other threads run meanwhile, unlike `mmap.madvise`.
        madvise = ctypes.CDLL(None).madvise
        madvise.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int]
        for array in kept:
            address = array.ctypes.data
            start = address // mmap.PAGESIZE * mmap.PAGESIZE
            madvise(start, address - start + array.nbytes, _POPULATE_READ)

    threading.Thread(target=run, name="map-pages", daemon=True).start()
