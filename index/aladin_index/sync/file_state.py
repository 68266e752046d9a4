"""Recorded state of a photo's file, by which a later pass over its folder sees what has changed.

A build and an addition record no digest of the content, see `aladin_index.encode.source_items`.
"""

from __future__ import annotations

import hashlib
from typing import NamedTuple


class FileState(NamedTuple):
    """State of a file when it was encoded, stored with its item as one text.

    Attributes:
        size: Length in bytes.
        mtime_ns: Time of the last change, in nanoseconds since 1970.
        sha256: Digest of the content, hexadecimal.
        details: Digest of what the folder says about the photo, see
            `aladin_index.encode.source_items.details_of`.
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


class BuiltState(NamedTuple):
    """State of a file that a build or an addition has recorded before it read the file.

    Attributes:
        size: Length in bytes.
        mtime_ns: Time of the last change, in nanoseconds since 1970.
        details: See `FileState`; None if the photo's text and metadata are not from its folder.
    """

    size: int
    mtime_ns: int
    details: str | None

    @classmethod
    def parse(cls, text: str | None) -> BuiltState | None:
        """Return the state of a stored form, or None if there is no such state."""
        size, _, rest = (text or "").partition(" ")
        mtime_ns, _, details = rest.partition(" ")
        try:
            return None if " " in details else cls(int(size), int(mtime_ns), details or None)
        except ValueError:
            return None


def sha256_of(data: bytes) -> str:
    """Return the digest of a file's content as in `FileState`."""
    return hashlib.sha256(data).hexdigest()
