"""Photos that were made smaller, kept for the next who asks for them."""

from __future__ import annotations

from service.lru_cache import LruCache
from service.photos.photo_bytes import PhotoBytes

# What the cache itself needs for a photo, about: its name, and its place in the order.
_OVERHEAD_BYTES = 300


class ThumbnailCache(LruCache[str, PhotoBytes]):
    """Keeps the photos that were asked for last, by their `photo_version`; see `LruCache`."""

    def entry_bytes(self, key: str, entry: PhotoBytes) -> int:
        """Return the memory that a photo takes."""
        del key  # of one length
        return len(entry.data) + _OVERHEAD_BYTES
