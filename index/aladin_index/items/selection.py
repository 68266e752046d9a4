"""The rows of a collection that a search may return, and a cache of recent selections."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Hashable
from functools import cached_property
from typing import Generic, TypeVar

import numpy as np
from numpy.typing import NDArray


class Selection:
    """An immutable set of rows in the forms that the first stage requires."""

    def __init__(self, mask: NDArray[np.bool_]) -> None:
        """Select the rows of a mask.

        Args:
            mask: (items,), True at the rows that may be found; not copied.
        """
        self.mask = mask

    @cached_property
    def count(self) -> int:
        """Number of selected rows."""
        return int(np.count_nonzero(self.mask))

    @cached_property
    def rows(self) -> NDArray[np.int64]:
        """Selected rows, ascending."""
        return np.flatnonzero(self.mask)

    @cached_property
    def bits(self) -> NDArray[np.uint8]:
        """One bit per row, the first in the lowest place, as FAISS requires."""
        return np.packbits(self.mask, bitorder="little")

    @property
    def max_bytes(self) -> int:
        """Memory of all its forms in bytes, including those not computed yet."""
        return self.mask.nbytes + 8 * self.count + -(-self.mask.size // 8)

    def __and__(self, other: Selection) -> Selection:
        """Return the intersection of two selections."""
        return Selection(self.mask & other.mask)


Key = TypeVar("Key", bound=Hashable)


class SelectionCache(Generic[Key]):
    """Cache of the most recently used selections, by their source; thread-safe."""

    def __init__(self, limit_bytes: int) -> None:
        """Keep selections of at most `limit_bytes` in total."""
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
