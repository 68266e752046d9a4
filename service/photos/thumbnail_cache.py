"""Photos that were made smaller, kept for the next who asks for them."""

from __future__ import annotations

import threading
from collections import OrderedDict

from service.photos.photo_bytes import PhotoBytes

# What the cache itself needs for a photo, about: its name, and its place in the order.
_OVERHEAD_BYTES = 300


class ThumbnailCache:
    """The photos that were asked for last, within a limit of bytes; safe to use from threads."""

    def __init__(self, max_bytes: int) -> None:
        """Keep nothing yet.

        Args:
            max_bytes: of all photos; 0: none is kept.
        """
        self._max_bytes = max_bytes
        self._bytes = 0
        self._photos: OrderedDict[str, PhotoBytes] = OrderedDict()
        self._lock = threading.Lock()

    @property
    def num_bytes(self) -> int:
        """That the photos take."""
        return self._bytes

    def get(self, version: str) -> PhotoBytes | None:
        """Return a photo that is kept; None where it is not."""
        with self._lock:
            photo = self._photos.get(version)
            if photo is not None:
                self._photos.move_to_end(version)
            return photo

    def put(self, version: str, photo: PhotoBytes) -> None:
        """Keep a photo, for which those give way that nobody asked for the longest.

        Args:
            version: as `photo_version`: a photo whose file has changed is another one.
            photo: not kept if it is larger than all may be together.
        """
        size = _size(photo)
        if size > self._max_bytes:
            return
        with self._lock:
            old = self._photos.pop(version, None)
            if old is not None:
                self._bytes -= _size(old)
            self._photos[version] = photo
            self._bytes += size
            while self._bytes > self._max_bytes:
                _, dropped = self._photos.popitem(last=False)
                self._bytes -= _size(dropped)


def _size(photo: PhotoBytes) -> int:
    return len(photo.data) + _OVERHEAD_BYTES
