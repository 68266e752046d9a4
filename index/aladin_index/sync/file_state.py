"""Recorded state of a photo's file, by which a later pass over its folder sees what has changed.

A build and an addition record size and time alone, see `aladin_index.encode.source_items`.
"""

from __future__ import annotations

import hashlib
import json
from typing import NamedTuple

from aladin_index.encode.source_items import ImageItem


class FileState(NamedTuple):
    """State of a file when it was encoded, stored with its item as one text.

    Attributes:
        size: Length in bytes.
        mtime_ns: Time of the last change, in nanoseconds since 1970.
        sha256: Digest of the content, hexadecimal.
        details: Digest of what the folder says about the photo, see `details_of`.
    """

    size: int
    mtime_ns: int
    sha256: str
    details: str

    @property
    def text(self) -> str:
        """Stored form of the state."""
        return " ".join(map(str, self))

    @classmethod
    def parse(cls, text: str | None) -> FileState | None:
        """Return the state of a stored form, or None if there is none that can be read."""
        parts = (text or "").split(" ")
        try:
            size, mtime_ns, sha256, details = parts
            return cls(int(size), int(mtime_ns), sha256, details)
        except ValueError:
            return None


def size_and_time(text: str | None) -> tuple[int, int] | None:
    """Return the state that a build or an addition has recorded, or None if the text is not one."""
    try:
        size, mtime_ns = map(int, (text or "").split(" "))
    except ValueError:
        return None
    return size, mtime_ns


def sha256_of(data: bytes) -> str:
    """Return the digest of a file's content as in `FileState`."""
    return hashlib.sha256(data).hexdigest()


def details_of(item: ImageItem) -> str:
    """Return a digest of the id, text and metadata of a photo, as its folder gives them."""
    said = json.dumps([item.id, item.text, dict(item.metadata)], sort_keys=True)
    return hashlib.sha256(said.encode("utf-8", "surrogatepass")).hexdigest()[:16]
