"""Where the bytes of a photo are: a file of its own, or a part of a larger one."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from aladin.errors import ImageError, ImageTooLargeError


@dataclass(frozen=True)
class PhotoFile:
    """A photo on disk; a member of a tar is read where it lies, never unpacked.

    Attributes:
        path: of the file that holds it.
        offset: of its first byte in that file.
        length: in bytes; None: all from `offset` on.
    """

    path: Path
    offset: int = 0
    length: int | None = None

    @property
    def source(self) -> str:
        """Name the photo in errors."""
        return str(self.path) if self.length is None else f"{self.path}@{self.offset}"

    def read(self, max_bytes: int) -> bytes:
        """Read the photo's bytes.

        Raises:
            ImageTooLargeError: there are more than `max_bytes`.
            ImageError: the file is missing, unreadable or shorter than it was.
        """
        try:
            with self.path.open("rb") as file:
                file.seek(self.offset)
                wanted = max_bytes + 1 if self.length is None else min(self.length, max_bytes + 1)
                data = file.read(wanted)
        except OSError as error:
            raise ImageError(self.source, error.strerror or "cannot be read") from error
        if len(data) > max_bytes:
            size = self.length or self.path.stat().st_size - self.offset
            raise ImageTooLargeError(self.source, f"{size} bytes, limit {max_bytes}")
        if self.length is not None and len(data) < self.length:
            raise ImageError(self.source, f"expected {self.length} bytes, got {len(data)}")
        return data
