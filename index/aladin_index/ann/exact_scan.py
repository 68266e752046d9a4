"""Exact search that reads a quarter of the vectors' bytes, and proves that nothing is missed.

Every vector is kept as one byte per dimension, and as the norm of what the bytes leave out. A scan
of the bytes gives each row an interval that its inner product lies in. Rows whose interval ends
below the `count` highest beginnings cannot be among the best `count`; all others, a few hundred
rows, are compared with the vectors themselves. The result is that of comparing them all: if bounds
are wide, more rows are compared, never fewer found.
"""

from __future__ import annotations

import math
import threading

import numpy as np
from numpy.typing import NDArray

from aladin_index.ann.exact_search import Nearest, best_of, exact_search, worth_copying
from aladin_index.items.selection import Selection
from aladin_index.kernel.nearest import (
    LANES,
    WIDTH_STEP,
    NearestKernel,
    load_nearest,
    native_codes,
)

# Codes beyond this size are not worth their memory: 500,000 vectors of 512 values.
_MOST_BYTES = 2**28
# Searches that compare all vectors before codes are made, which takes as long as some ten: a
# command that searches once goes without.
_SEARCHES_WITHOUT = 3
_VECTORS_AT_A_TIME = 2**14
# Makes an upper bound of a norm that was rounded.
_ROUNDED_UP = 1 + 1e-5
_ALIGNMENT = 64


class ExactScan:
    """Finds the rows with the largest inner products; thread-safe."""

    def __init__(self, embeddings: NDArray[np.float32], kernel: NearestKernel) -> None:
        """Keep the vectors; codes are made by a later search."""
        self._embeddings = embeddings
        self._kernel = kernel
        self._codes: _Codes | None = None
        self._searches = 0
        self._lock = threading.Lock()

    @classmethod
    def of(cls, embeddings: NDArray[np.float32]) -> ExactScan | None:
        """Scan some vectors, or None where the library is missing or the codes were too large."""
        kernel = load_nearest()
        if kernel is None or embeddings.size == 0 or embeddings.size > _MOST_BYTES:
            return None
        return cls(embeddings, kernel)

    def is_ready(self) -> bool:
        """Count a search, and tell whether there are codes, which the last of some makes."""
        self._searches += 1
        is_due = self._codes is None and self._searches > _SEARCHES_WITHOUT
        # While one thread makes them, the others search without codes.
        if is_due and self._lock.acquire(blocking=False):
            try:
                self._codes = self._codes or _Codes(self._embeddings, self._kernel)
            finally:
                self._lock.release()
        return self._codes is not None

    def nearest(
        self, queries: NDArray[np.float32], count: int, allowed: Selection | None = None
    ) -> list[Nearest] | None:
        """Find the nearest rows, see `aladin_index.ann.first_stage.FirstStage`."""
        size = len(self._embeddings)
        # Few rows are compared one by one.
        if allowed is not None and worth_copying(allowed, size):
            return None
        if count >= (size if allowed is None else allowed.count) or not self.is_ready():
            return None
        return [self.search(query, count, allowed) for query in queries]

    def search(
        self, query: NDArray[np.float32], count: int, allowed: Selection | None = None
    ) -> Nearest:
        """Find the rows that `exact_search` finds; the scores are those of FAISS."""
        total = len(self._embeddings) if allowed is None else allowed.count
        codes = self._codes
        if codes is not None and count < total:
            rows = codes.candidates(query, count, None if allowed is None else allowed.bits)
            if len(rows) >= count:  # there are fewer only where vectors are no numbers
                return best_of(self._embeddings, query, rows, count)
        return exact_search(self._embeddings, query, count, allowed)


class _Codes:
    """The codes of all vectors, and what a query needs of them."""

    def __init__(self, embeddings: NDArray[np.float32], kernel: NearestKernel) -> None:
        count, dim = embeddings.shape
        width = -(-dim // WIDTH_STEP) * WIDTH_STEP
        rows = -(-count // LANES) * LANES
        room = np.full(rows * width + _ALIGNMENT, 128, dtype=np.uint8)
        start = -room.ctypes.data % _ALIGNMENT
        self._codes = room[start : start + rows * width].reshape(rows, width)
        self._scales = np.zeros(rows, dtype=np.float32)
        self._errors = np.zeros(rows, dtype=np.float32)
        # Vectors of a collection lean one way; what is left of them is smaller.
        sample = embeddings[:: max(count // _VECTORS_AT_A_TIME, 1)]
        mean = sample.mean(axis=0, dtype=np.float64).astype(np.float32)
        largest = 0.0
        for first in range(0, count, _VECTORS_AT_A_TIME):
            some = np.ascontiguousarray(embeddings[first : first + _VECTORS_AT_A_TIME])
            kernel.encode(some, mean, first, self._codes, self._scales, self._errors)
            largest = max(largest, float(np.einsum("ij,ij->i", some, some).max()))
        longest = math.sqrt(largest) * _ROUNDED_UP
        # A code with its scale is a vector less the mean, and less what is left out.
        code_norm = longest + float(np.linalg.norm(mean)) + float(self._errors.max())
        self._kernel = kernel
        self._native = native_codes(
            self._codes, self._scales, self._errors, (count, dim), longest, code_norm * _ROUNDED_UP
        )

    def candidates(
        self, query: NDArray[np.float32], count: int, allowed: NDArray[np.uint8] | None
    ) -> NDArray[np.int64]:
        """Return rows among which are the `count` best, see `NearestKernel.rows`."""
        return self._kernel.rows(self._native, query, count, allowed)
