"""A cache of the most recently used entries, limited by bytes."""

from __future__ import annotations

import hashlib
import threading
from abc import ABC, abstractmethod
from collections import OrderedDict
from collections.abc import Hashable
from typing import Generic, NamedTuple, TypeVar

import numpy as np
import numpy.typing as npt

from aladin_network.scoring.encoding import Encoding
from aladin_service.search.job import PhotoQuery, RegionsQuery

K = TypeVar("K", bound=Hashable)
V = TypeVar("V")

_ENTRY_BYTES = 1500


class LruCache(ABC, Generic[K, V]):
    """Keeps the most recently used entries; thread-safe.

    A subclass says how large an entry is. With 0 bytes it keeps nothing.
    """

    def __init__(self, max_bytes: int) -> None:
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
        """Store an entry, unless it is too large; the least recently used ones give way."""
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


class CacheKey(NamedTuple):
    """Key that determines an encoding.

    Attributes:
        model_id: ID of the network's model.
        content: The text as received, or the sha256 of the bytes of a photo or its regions.
    """

    model_id: str
    content: str | bytes

    @classmethod
    def of(cls, model_id: str, content: str | bytes) -> CacheKey:
        """Return the key of a text or of a file."""
        is_photo = isinstance(content, bytes)
        return cls(model_id, hashlib.sha256(content).digest() if is_photo else content)


class CachedEncoding(NamedTuple):
    """The encoding of one query.

    Attributes:
        encoding: Encoding of a single item, without padding.
        size_px: Width and height of a photo, or None for a text.
        boxes: Boxes of a photo's regions, if they were given.
    """

    encoding: Encoding
    size_px: tuple[int, int] | None
    boxes: npt.NDArray[np.float32] | None = None


class EncodingCache(LruCache[CacheKey, CachedEncoding]):
    """Keeps the most recently used encodings; see `LruCache`."""

    def entry_bytes(self, key: CacheKey, entry: CachedEncoding) -> int:
        """Return the memory that an entry takes, its key included."""
        # A text takes at most four bytes per character in memory.
        content = key.content
        of_key = len(content) if isinstance(content, bytes) else 4 * len(content)
        boxes = 0 if entry.boxes is None else entry.boxes.nbytes
        return _ENTRY_BYTES + of_key + boxes + sum(part.nbytes for part in entry.encoding)


def content_of(query: PhotoQuery | RegionsQuery) -> bytes:
    """Return the cache key's content, which differs for files of different kinds."""
    if isinstance(query, PhotoQuery):
        return query.data
    # The photo given with regions is part of the content, too, because it determines the size.
    files = (b"regions", query.data, query.picture or b"")
    return b"".join(hashlib.sha256(each).digest() for each in files)
