"""Encodings of queries that may come again: the network need not run twice for the same words."""

from __future__ import annotations

import hashlib
import threading
from collections import OrderedDict
from typing import NamedTuple

from aladin.encoding import Encoding

# What an entry takes beside its numbers and its key: tensors, tuples and the table's own.
_ENTRY_BYTES = 1500


class CacheKey(NamedTuple):
    """What an encoding depends on.

    Attributes:
        model_id: of the network.
        content: the text as it came, or the sha256 of a photo's bytes.
    """

    model_id: str
    content: str | bytes

    @classmethod
    def of(cls, model_id: str, content: str | bytes) -> CacheKey:
        """Return the key of a text, or of a picture file.

        Args:
            model_id: of the network.
            content: the text, or the bytes of the file.
        """
        is_photo = isinstance(content, bytes)
        return cls(model_id, hashlib.sha256(content).digest() if is_photo else content)


class CachedEncoding(NamedTuple):
    """The encoding of one query.

    Attributes:
        encoding: of the one item, without padding.
        size_px: width and height of a photo; None for a text.
    """

    encoding: Encoding
    size_px: tuple[int, int] | None


class EncodingCache:
    """Keeps the encodings that were used last, within a number of bytes.

    Safe to use from any number of threads.
    """

    def __init__(self, max_bytes: int) -> None:
        """Keep nothing yet.

        Args:
            max_bytes: of all entries; 0 keeps none.
        """
        self._max_bytes = max_bytes
        self._entries: OrderedDict[CacheKey, CachedEncoding] = OrderedDict()
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

    def get(self, key: CacheKey) -> CachedEncoding | None:
        """Return an entry, or None where there is none."""
        with self._lock:
            entry = self._entries.get(key)
            if entry is not None:
                self._entries.move_to_end(key)
            return entry

    def put(self, key: CacheKey, entry: CachedEncoding) -> None:
        """Keep an entry; those that were not used for longest make room."""
        size = _entry_bytes(key, entry)
        if size > self._max_bytes:
            return
        with self._lock:
            replaced = self._entries.pop(key, None)
            if replaced is not None:
                self._bytes -= _entry_bytes(key, replaced)
            self._entries[key] = entry
            self._bytes += size
            while self._bytes > self._max_bytes:
                self._bytes -= _entry_bytes(*self._entries.popitem(last=False))


def _entry_bytes(key: CacheKey, entry: CachedEncoding) -> int:
    # A text is at most four bytes a character in memory.
    content = key.content
    of_key = len(content) if isinstance(content, bytes) else 4 * len(content)
    return _ENTRY_BYTES + of_key + sum(part.nbytes for part in entry.encoding)
