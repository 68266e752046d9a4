"""What was used last, kept within a number of bytes."""

from __future__ import annotations

import threading
from abc import ABC, abstractmethod
from collections import OrderedDict
from collections.abc import Hashable
from typing import Generic, TypeVar

K = TypeVar("K", bound=Hashable)
V = TypeVar("V")


class LruCache(ABC, Generic[K, V]):
    """Keeps the entries that were used last; safe to use from any number of threads.

    A subclass says how large an entry is.
    """

    def __init__(self, max_bytes: int) -> None:
        """Keep nothing yet.

        Args:
            max_bytes: of all entries; 0: none is kept.
        """
        self._max_bytes = max_bytes
        self._entries: OrderedDict[K, V] = OrderedDict()
        self._bytes = 0
        self._lock = threading.Lock()

    @property
    def size_bytes(self) -> int:
        """What the entries take now."""
        return self._bytes

    @property
    def is_on(self) -> bool:
        """Whether it may keep anything at all."""
        return self._max_bytes > 0

    def get(self, key: K) -> V | None:
        """Return an entry; None where there is none."""
        with self._lock:
            entry = self._entries.get(key)
            if entry is not None:
                self._entries.move_to_end(key)
            return entry

    def put(self, key: K, entry: V) -> None:
        """Keep an entry, for which those give way that nobody asked for the longest.

        Args:
            key: whose entry, if it has one, is replaced.
            entry: not kept if it is larger than all may be together.
        """
        size = self.entry_bytes(key, entry)
        if size > self._max_bytes:
            return
        with self._lock:
            replaced = self._entries.pop(key, None)
            if replaced is not None:
                self._bytes -= self.entry_bytes(key, replaced)
            self._entries[key] = entry
            self._bytes += size
            while self._bytes > self._max_bytes:
                self._bytes -= self.entry_bytes(*self._entries.popitem(last=False))

    @abstractmethod
    def entry_bytes(self, key: K, entry: V) -> int:
        """Return the memory that an entry takes, its key included."""
