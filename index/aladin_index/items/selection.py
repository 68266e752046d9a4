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
    """A set of rows in the forms that the first stage asks for; never changes."""

    def __init__(self, mask: NDArray[np.bool_]) -> None:
        """Select rows.

        Args:
            mask: (items,), True at the rows that may be found; not copied.
        """
        self.mask = mask

    @cached_property
    def count(self) -> int:
        """Number of rows that may be found."""
        return int(np.count_nonzero(self.mask))

    @cached_property
    def rows(self) -> NDArray[np.int64]:
        """The rows themselves, ascending."""
        return np.flatnonzero(self.mask)

    @cached_property
    def bits(self) -> NDArray[np.uint8]:
        """One bit a row, the first in the lowest place: what FAISS takes."""
        return np.packbits(self.mask, bitorder="little")

    @property
    def max_bytes(self) -> int:
        """Memory that all of its forms take, those not yet asked for as well."""
        return self.mask.nbytes + 8 * self.count + -(-self.mask.size // 8)

    def __and__(self, other: Selection) -> Selection:
        """Select the rows that both select."""
        return Selection(self.mask & other.mask)


Key = TypeVar("Key", bound=Hashable)


class SelectionCache(Generic[Key]):
    """The selections used last, by what they were made from; safe for any number of threads."""

    def __init__(self, limit_bytes: int) -> None:
        """Keep selections of at most `limit_bytes` together."""
        self._limit_bytes = limit_bytes
        self._bytes = 0
        self._lock = threading.Lock()
        self._selections: OrderedDict[Key, Selection] = OrderedDict()

    def get(self, key: Key) -> Selection | None:
        """Return what was put under `key`, if it is still kept."""
        with self._lock:
            selection = self._selections.get(key)
            if selection is not None:
                self._selections.move_to_end(key)
            return selection

    def put(self, key: Key, selection: Selection) -> None:
        """Keep a selection, and let go of those that were not used for the longest time."""
        with self._lock:
            previous = self._selections.pop(key, None)
            self._bytes -= 0 if previous is None else previous.max_bytes
            self._selections[key] = selection
            self._bytes += selection.max_bytes
            while self._bytes > self._limit_bytes:
                _, dropped = self._selections.popitem(last=False)
                self._bytes -= dropped.max_bytes
