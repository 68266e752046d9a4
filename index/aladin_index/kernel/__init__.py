"""Scores of the second stage computed in C: the Python binding of the native kernel.

The library is compiled by `hatch_build.py`.

ctypes releases the GIL for as long as a call takes.
"""

from __future__ import annotations

import ctypes
import logging
import sys
from collections.abc import Sequence
from ctypes import POINTER, byref, c_char_p, c_int32, c_int64, c_void_p
from functools import cache
from itertools import accumulate
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from aladin_index.kernel.structures import (
    NativeQueries,
    NativeShortQuery,
    NativeShorts,
    NativeTokens,
    ShortQuery,
    address,
)

if sys.platform == "linux":
    import resource

__all__ = ["Kernel", "KernelError", "NativeTokens", "Queries", "blocks_read", "load_kernel"]

logger = logging.getLogger(__name__)

# Expected return value of the library's `maxsim_interface`; see maxsim.h.
INTERFACE = 6
# Prefix of the library's name; the suffix depends on the system.
LIBRARY_STEM = "_maxsim"

_PROBLEMS = {
    1: "row out of range",
    2: "the offsets of an item are not in order",
    3: "a token refers to a centroid that does not exist",
    4: "out of memory",
    5: "this processor does not support the code path",
    6: "the width of short tokens is no multiple of 4",
    7: "a value of a short query is larger than this path multiplies",
}


class KernelError(Exception):
    """The kernel received data that cannot be scored."""

    def __init__(self, status: int) -> None:
        super().__init__(_PROBLEMS.get(status, f"unknown status {status}"))
        self.status = status

    @property
    def is_row(self) -> bool:
        """Whether the caller requested a row that does not exist; else the data are damaged."""
        return self.status == 1


class Queries:
    """Queries in the layout that the kernel expects.

    Attributes:
        count: Number of queries.
    """

    def __init__(self, queries: Sequence[NDArray[np.float32]], *, are_regions: bool) -> None:
        """Concatenate the queries."""
        self.count = len(queries)
        self._tokens = np.ascontiguousarray(
            queries[0] if len(queries) == 1 else np.concatenate(queries), dtype=np.float32
        )
        self._offsets = np.array([0, *accumulate(map(len, queries))], dtype=np.int64)
        self.native = NativeQueries(
            self._tokens.ctypes.data, self._offsets.ctypes.data, self.count, are_regions
        )


class Kernel:
    """A loaded kernel library.

    Attributes:
        paths: Names of the code paths that this processor supports, fastest first.
        short_largest: Largest absolute value of a short query that each of them multiplies.
    """

    def __init__(self, library: ctypes.CDLL) -> None:
        """Declare the library's functions."""
        tokens, queries = POINTER(NativeTokens), POINTER(NativeQueries)
        self._score_rows = library.maxsim_score_rows
        self._score_rows.argtypes = [tokens, queries, c_void_p, c_void_p, c_void_p, c_int32]
        self._score_range = library.maxsim_score_range
        self._score_range.argtypes = [
            tokens, queries, c_int64, c_int64, c_void_p, c_int64, c_int32,
        ]  # fmt: skip
        self._bound_range = library.maxsim_bound_range
        self._bound_range.argtypes = [
            POINTER(NativeShorts), POINTER(NativeShortQuery), c_int64, c_int64, c_void_p, c_int32,
        ]  # fmt: skip
        self._bound_rows = library.maxsim_bound_rows
        self._bound_rows.argtypes = [
            POINTER(NativeShorts), POINTER(NativeShortQuery), c_void_p, c_int64, c_void_p, c_int32,
        ]  # fmt: skip
        self._round = library.maxsim_round
        self._round.argtypes = [
            c_void_p, c_void_p, c_void_p, c_int64, c_int32, c_int32, c_void_p,
        ]  # fmt: skip
        library.maxsim_path.restype = c_char_p
        library.maxsim_path.argtypes = [c_int32]
        self.paths: list[str] = []
        while (name := library.maxsim_path(len(self.paths))) is not None:
            self.paths.append(name.decode("ascii"))
        library.maxsim_short_largest.argtypes = [c_int32]
        self.short_largest: list[int] = [
            library.maxsim_short_largest(path) for path in range(len(self.paths))
        ]

    def score_rows(
        self,
        tokens: NativeTokens,
        queries: Queries,
        rows: NDArray[np.int64],
        row_offsets: NDArray[np.int64],
        path: int = 0,
    ) -> NDArray[np.float32]:
        """Score the candidates of each query, which begin at its row offset.

        Raises `KernelError` if a row does not exist or the store is damaged.
        """
        rows = np.ascontiguousarray(rows, dtype=np.int64)
        scores = np.empty(len(rows), dtype=np.float32)
        status = self._score_rows(
            byref(tokens),
            byref(queries.native),
            rows.ctypes.data,
            row_offsets.ctypes.data,
            scores.ctypes.data,
            path,
        )
        if status:
            raise _problem(status)
        return scores

    def score_range(
        self,
        tokens: NativeTokens,
        queries: Queries,
        first: int,
        scores: NDArray[np.float32],
        path: int = 0,
    ) -> None:
        """Fill (queries, items) scores of the items from `first` on, in storage order."""
        stride, item = scores.strides
        assert item == scores.itemsize
        end = first + scores.shape[1]
        place, step = scores.ctypes.data, stride // item
        status = self._score_range(
            byref(tokens), byref(queries.native), first, end, place, step, path
        )
        if status:
            raise _problem(status)

    def bound_range(
        self,
        shorts: NativeShorts,
        query: ShortQuery,
        first: int,
        bounds: NDArray[np.float32],
        path: int = 0,
    ) -> None:
        """Fill (items,) bounds of the items from `first` on, by their short forms."""
        assert bounds.flags.c_contiguous
        status = self._bound_range(
            byref(shorts), byref(query.native), first, first + len(bounds), bounds.ctypes.data, path
        )
        if status:
            raise _problem(status)

    def bound_rows(
        self, shorts: NativeShorts, query: ShortQuery, rows: NDArray[np.int64], path: int = 0
    ) -> NDArray[np.float32]:
        """Score the short forms of some items, see `bound_range`."""
        rows = np.ascontiguousarray(rows, dtype=np.int64)
        bounds = np.empty(len(rows), dtype=np.float32)
        status = self._bound_rows(
            byref(shorts),
            byref(query.native),
            rows.ctypes.data,
            len(rows),
            bounds.ctypes.data,
            path,
        )
        if status:
            raise _problem(status)
        return bounds

    def round(
        self,
        vectors: NDArray[np.float32],
        scales: NDArray[np.float32],
        feedback: NDArray[np.float32] | None,
        bits: int,
    ) -> NDArray[np.int8]:
        """Round (n, dim) vectors, see `aladin_index.tokens.quantisation.round_to_levels`.

        Of 8 bits the result has the levels from -127 to 127, else places among the levels.
        """
        vectors = np.ascontiguousarray(vectors, dtype=np.float32)
        scales = np.ascontiguousarray(scales, dtype=np.float32)
        if feedback is not None:
            feedback = np.ascontiguousarray(feedback, dtype=np.float32)
        count, dim = vectors.shape
        rounded = np.empty((count, dim), dtype=np.int8)
        status = self._round(
            vectors.ctypes.data,
            scales.ctypes.data,
            address(feedback),
            count,
            dim,
            bits,
            rounded.ctypes.data,
        )
        if status:
            raise _problem(status)
        return rounded


@cache
def load_kernel() -> Kernel | None:
    """Load the compiled kernel, or return None without one of this version; log which is used."""
    for path in sorted(Path(__file__).parent.glob(f"{LIBRARY_STEM}.*")):
        try:
            library = ctypes.CDLL(str(path))
            interface = library.maxsim_interface()
        except (OSError, AttributeError) as error:
            logger.warning("re-ranking with numpy: %s cannot be loaded (%s)", path.name, error)
            return None
        if interface != INTERFACE:
            logger.warning(
                "re-ranking with numpy: %s has interface %d, expected %d; install again",
                path.name, interface, INTERFACE,
            )  # fmt: skip
            return None
        kernel = Kernel(library)
        logger.debug("re-ranking with the native kernel, %s", kernel.paths[0])
        return kernel
    logger.warning("re-ranking with numpy: the native kernel was not compiled at installation")
    return None


def blocks_read() -> int:
    """Return how many blocks this thread has read from disks so far; 0 where that is not known.

    Pages of mapped files that the kernel meets, and those that were asked for, count alike.
    """
    if sys.platform == "linux":
        return resource.getrusage(resource.RUSAGE_THREAD).ru_inblock
    return 0


def _problem(status: int) -> Exception:
    """Return the error for a status other than 0."""
    if status == 4:
        return MemoryError("the re-ranking kernel found no memory")
    return KernelError(status)
