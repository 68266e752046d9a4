"""Arrays on disk: streamed out in parts, mapped in without being read."""

from __future__ import annotations

import mmap
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import DTypeLike, NDArray

from aladin.errors import IndexCorruptError


def write_npy(
    path: Path, dtype: DTypeLike, shape: tuple[int, ...], parts: Iterable[NDArray[Any]]
) -> None:
    """Write an array part by part, holding one part in memory at a time.

    Plain writes, not a writable memory map: a full disk is then an error, not a bus error.

    Args:
        path: the file.
        dtype: of the array; the parts are converted.
        shape: of the whole array.
        parts: pieces along axis 0, in order.

    Raises:
        OSError: the disk is full, or cannot be written.
        ValueError: the parts do not add up to `shape`.
    """
    kind = np.dtype(dtype)
    header = {"descr": np.lib.format.dtype_to_descr(kind), "fortran_order": False, "shape": shape}
    rows = 0
    with path.open("wb") as file:
        np.lib.format.write_array_header_1_0(file, header)
        for part in parts:
            if part.shape[1:] != shape[1:]:
                raise ValueError(f"{path.name}: a part of shape {part.shape} in one of {shape}")
            rows += part.shape[0]
            file.write(np.ascontiguousarray(part, dtype=kind).data)
    if rows != shape[0]:
        raise ValueError(f"{path.name}: {rows} rows were written, expected {shape[0]}")


def map_npy(
    path: Path, dtype: DTypeLike, shape: tuple[int, ...], *, random: bool = False
) -> NDArray[Any]:
    """Map an array of a known shape without reading it.

    Args:
        path: the file.
        dtype: expected.
        shape: expected.
        random: rows are read here and there. On a cold page cache the kernel's read-ahead then
            costs some forty times what is needed; it is turned off.

    Raises:
        IndexCorruptError: not such an array.
    """
    try:
        # Copy on write: torch takes the pages as a tensor without complaint, and nothing that
        # is done to them could reach the file.
        array: NDArray[Any] = np.load(path, mmap_mode="c", allow_pickle=False)
    except (OSError, ValueError, EOFError) as error:
        raise IndexCorruptError(path, f"not a readable array ({error})") from error
    if array.dtype != np.dtype(dtype) or array.shape != shape:
        found = f"{array.dtype} {array.shape}"
        raise IndexCorruptError(path, f"expected {np.dtype(dtype)} {shape}, got {found}")
    if random and isinstance(array.base, mmap.mmap) and hasattr(mmap, "MADV_RANDOM"):
        array.base.madvise(mmap.MADV_RANDOM)
    return np.asarray(array)
