"""Rows that may be among the nearest to a query, found in C: the Python binding of nearest.h."""

from __future__ import annotations

import ctypes
from ctypes import POINTER, Structure, byref, c_float, c_int32, c_int64, c_void_p
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from aladin_index.kernel import LIBRARY_STEM

# Expected return value of the library's `nearest_interface`; see nearest.h.
_INTERFACE = 1
# Vectors of a block, and the multiple that dimensions are rounded up to.
LANES = WIDTH_STEP = 16
_NO_MEMORY = -1


class NativeCodes(Structure):
    """`nearest_items`: location of the codes of all vectors."""

    _fields_ = (
        ("codes", c_void_p),
        ("scales", c_void_p),
        ("errors", c_void_p),
        ("count", c_int64),
        ("dim", c_int32),
        ("width", c_int32),
        ("norm", c_float),
        ("code_norm", c_float),
    )


class NearestKernel:
    """The functions of nearest.h in a loaded library."""

    def __init__(self, library: ctypes.CDLL) -> None:
        """Declare the library's functions."""
        self._rows = library.nearest_rows
        self._rows.restype = c_int64
        self._rows.argtypes = [
            POINTER(NativeCodes), c_void_p, c_int64, c_void_p, c_void_p, c_int32,
        ]  # fmt: skip
        self._encode = library.nearest_encode
        self._encode.restype = None
        self._encode.argtypes = [
            c_void_p, c_void_p, c_int64, c_int32, c_int32, c_int64, c_void_p, c_void_p, c_void_p,
        ]  # fmt: skip

    def encode(
        self,
        vectors: NDArray[np.float32],
        mean: NDArray[np.float32],
        first: int,
        codes: NDArray[np.uint8],
        scales: NDArray[np.float32],
        errors: NDArray[np.float32],
    ) -> None:
        """Encode (n, dim) vectors less the mean as the rows from `first` on, see nearest.h.

        `errors` receives upper bounds of the norms of what the codes leave out.
        """
        count, dim = vectors.shape
        self._encode(
            vectors.ctypes.data,
            mean.ctypes.data,
            count,
            dim,
            codes.shape[1],
            first,
            codes.ctypes.data,
            scales.ctypes.data,
            errors.ctypes.data,
        )

    def rows(
        self,
        items: NativeCodes,
        query: NDArray[np.float32],
        wanted: int,
        allowed: NDArray[np.uint8] | None,
        path: int = 0,
    ) -> NDArray[np.int64]:
        """Return rows in any order, among them the `wanted` nearest to a query, (dim,).

        `allowed` has one bit per row, the first in the lowest place; `path` is a code path of the
        processor, fastest first.
        """
        found = np.empty(items.count, dtype=np.int64)
        bits = None if allowed is None else allowed.ctypes.data
        count = self._rows(byref(items), query.ctypes.data, wanted, bits, found.ctypes.data, path)
        if count == _NO_MEMORY:
            raise MemoryError("the scan of the first stage found no memory")
        if count < 0:
            raise ValueError(f"expected a code path of this processor, got {path}")
        return found[:count]


def native_codes(
    codes: NDArray[np.uint8],
    scales: NDArray[np.float32],
    errors: NDArray[np.float32],
    shape: tuple[int, int],
    norm: float,
    code_norm: float,
) -> NativeCodes:
    """Point to arrays as `NearestKernel.encode` fills them, which must outlive the result.

    `norm` is at least that of the longest vector, `code_norm` that of the longest code times scale.
    """
    return NativeCodes(
        codes.ctypes.data,
        scales.ctypes.data,
        errors.ctypes.data,
        *shape,
        codes.shape[1],
        norm,
        code_norm,
    )


@cache
def load_nearest() -> NearestKernel | None:
    """Load the library of the installation; None where there is none, or of another version."""
    for path in sorted(Path(__file__).parent.glob(f"{LIBRARY_STEM}.*")):
        try:
            library: Any = ctypes.CDLL(str(path))
            if library.nearest_interface() == _INTERFACE:
                return NearestKernel(library)
        except (OSError, AttributeError):
            pass
    return None
