"""A cache of the most recently used entries, limited by bytes."""

from __future__ import annotations

import threading
from abc import ABC, abstractmethod
from collections import OrderedDict
from collections.abc import Hashable
from typing import Generic, TypeVar

K = TypeVar("K", bound=Hashable)
V = TypeVar("V")


class LruCache(ABC, Generic[K, V]):
    """Keeps the most recently used entries; thread-safe.

    A subclass says how large an entry is.
    """

    def __init__(self, max_bytes: int) -> None:
        """Create an empty cache.

        Args:
            max_bytes: Limit of the size of all entries; 0 disables the cache.
        """
        self._max_bytes = max_bytes
        self._entries: OrderedDict[K, V] = OrderedDict()
        self._bytes = 0
        self._lock = threading.Lock()

    @property
    def size_bytes(self) -> int:
        """Current size of the entries."""
        return self._bytes

    @property
    def is_on(self) -> bool:
        """Whether the cache may store anything."""
        return self._max_bytes > 0

    def get(self, key: K) -> V | None:
        """Return an entry, or None if there is none."""
        with self._lock:
            entry = self._entries.get(key)
            if entry is not None:
                self._entries.move_to_end(key)
            return entry

    def put(self, key: K, entry: V) -> None:
        """Store an entry, evicting the least recently used ones if necessary.

        Args:
            key: Key of the entry; an existing entry of the key is replaced.
            entry: Entry, which is not stored if it is larger than the limit of the whole cache.
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
