"""Where the bytes of a photo are: a file of its own, or a part of a larger one."""

from __future__ import annotations

import os
import stat
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

    def read(self, max_bytes: int | None = None) -> bytes:
        """Read the photo's bytes.

        Args:
            max_bytes: refuse more, before they are read; None: read all.

        Raises:
            ImageTooLargeError: there are more than `max_bytes`.
            ImageError: the file is missing, unreadable or shorter than it was.
        """
        try:
            # A pipe that took the photo's place would let a plain opening wait for its writer.
            with open(self.path, "rb", opener=_open_at_once) as file:
                state = os.fstat(file.fileno())
                if not stat.S_ISREG(state.st_mode):
                    raise ImageError(self.source, "expected a regular file")
                length = self.length
                if length is None:
                    length = state.st_size - self.offset
                if max_bytes is not None and length > max_bytes:
                    raise ImageTooLargeError(self.source, f"{length} bytes, limit {max_bytes}")
                file.seek(self.offset)
                data = file.read(length)
        except OSError as error:
            raise ImageError(self.source, error.strerror or "cannot be read") from error
        except ValueError as error:  # a name with a zero byte is none
            raise ImageError(self.source, str(error)) from error
        if len(data) < length:
            raise ImageError(self.source, f"expected {length} bytes, got {len(data)}")
        return data


def _open_at_once(path: str, flags: int) -> int:
    return os.open(path, flags | getattr(os, "O_NONBLOCK", 0))
