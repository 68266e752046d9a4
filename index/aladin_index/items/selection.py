"""The rows of a collection that a search may return, and a cache of recent selections."""

from __future__ import annotations

import threading
from array import array
from collections import OrderedDict
from collections.abc import Hashable
from functools import cached_property
from typing import Any, Generic, TypeVar

import numpy as np
from numpy.typing import NDArray
from pyroaring import BitMap


def bitmap_of(rows: NDArray[Any]) -> BitMap:
    """Return a compressed bitmap of rows, 0 to 2**32 - 1 in any order."""
    # From an array of the standard library, it is made without a Python object for each row.
    numbers = array("I")
    numbers.frombytes(rows.astype(np.uint32, copy=False).tobytes())
    return BitMap(numbers)


class Selection:
    """An immutable set of rows in the forms that the first stage requires."""

    def __init__(self, bitmap: BitMap, size: int) -> None:
        """Select the rows of a bitmap, which must not change, of `size` items."""
        self.bitmap = bitmap
        self.size = size
        self._parts: tuple[Selection, Selection] | None = None

    @classmethod
    def of_mask(cls, mask: NDArray[np.bool_]) -> Selection:
        return cls(bitmap_of(np.flatnonzero(mask)), mask.size)

    @cached_property
    def mask(self) -> NDArray[np.bool_]:
        """(items,), True at the selected rows."""
        mask = np.zeros(self.size, dtype=np.bool_)
        mask[self.rows] = True
        return mask

    @cached_property
    def count(self) -> int:
        return len(self.bitmap)

    @cached_property
    def rows(self) -> NDArray[np.int64]:
        """Selected rows, ascending."""
        return np.frombuffer(self.bitmap.to_array(), dtype=np.uint32).astype(np.int64)

    @cached_property
    def bits(self) -> NDArray[np.uint8]:
        """One bit per row, the first in the lowest place, as FAISS requires."""
        return np.packbits(self.mask, bitorder="little")

    @property
    def max_bytes(self) -> int:
        """Memory of all its forms in bytes, including those not computed yet.

        A bitmap takes at most two bytes for a row, or a bit for each item.
        """
        bits = -(-self.size // 8)
        return self.size + 8 * self.count + bits + min(2 * self.count, bits)

    def split(self, place: int) -> tuple[Selection, Selection]:
        """Return the selection of the rows below `place`, and of the others counted from there."""
        if self._parts is None or self._parts[0].size != place:
            later = self.bitmap & BitMap(range(place, self.size))
            self._parts = (
                Selection(self.bitmap - later, place),
                Selection(later.shift(-place), self.size - place),
            )
        return self._parts


Key = TypeVar("Key", bound=Hashable)


class SelectionCache(Generic[Key]):
    """Cache of the most recently used selections, by their source; thread-safe."""

    def __init__(self, limit_bytes: int) -> None:
        self._limit_bytes = limit_bytes
        self._bytes = 0
        self._lock = threading.Lock()
        self._selections: OrderedDict[Key, Selection] = OrderedDict()

    def get(self, key: Key) -> Selection | None:
        """Return the selection stored under `key`, if it is still cached."""
        with self._lock:
            selection = self._selections.get(key)
            if selection is not None:
                self._selections.move_to_end(key)
            return selection

    def put(self, key: Key, selection: Selection) -> None:
        """Store a selection, and drop the least recently used ones."""
        with self._lock:
            previous = self._selections.pop(key, None)
            self._bytes -= 0 if previous is None else previous.max_bytes
            self._selections[key] = selection
            self._bytes += selection.max_bytes
            while self._bytes > self._limit_bytes:
                _, dropped = self._selections.popitem(last=False)
                self._bytes -= dropped.max_bytes
