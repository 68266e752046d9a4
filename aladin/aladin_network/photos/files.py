"""Photos on disk: files and tar members, the photos root, file names as ids, table columns."""

from __future__ import annotations

import math
import os
import re
import stat
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import date, datetime, time
from decimal import Decimal
from functools import lru_cache
from pathlib import Path
from typing import Any, cast

from aladin_network.errors import ImageError, ImageTooLargeError

# Number of folders whose real paths are cached while a data set is read.
_FOLDERS = 1024

CONTROL_CHARACTER = re.compile(r"[\x00-\x1f\x7f-\x9f]")
# Surrogates: Python's representation of file-name bytes that are not UTF-8, or unpaired halves.
_SURROGATE = re.compile(r"[\ud800-\udfff]")

# Names of columns in the tables of open_clip, img2dataset and clip-retrieval. If several are
# present, the first is used and the others are metadata.
PHOTO = ("image", "image_path", "filepath", "path", "file_name")
CAPTIONS = ("captions", "caption", "title", "text")
ID = ("id", "key")
SPLIT = "split"

# Prefix of the columns in which pandas stores its row labels.
_PANDAS_INDEX = "__index_level_"


@dataclass(frozen=True)
class PhotoFile:
    """A photo on disk: a file, or a part of a file such as a tar member, which is read in place.

    Attributes:
        path: Path of the file that contains the photo.
        offset: Position of the photo's first byte in that file.
        length: Length in bytes, or None if the photo extends to the end of the file.
    """

    path: Path
    offset: int = 0
    length: int | None = None

    @property
    def source(self) -> str:
        """Name of the photo in error messages."""
        return str(self.path) if self.length is None else f"{self.path}@{self.offset}"

    def read(self, max_bytes: int | None = None) -> bytes:
        """Read the photo's bytes.

        Args:
            max_bytes: Maximum size, checked before reading, or None for no limit.

        Raises:
            ImageTooLargeError: If the photo has more than `max_bytes` bytes.
            ImageError: If the file is missing, unreadable, or shorter than expected.
        """
        try:
            # If a pipe has replaced the photo, a blocking open would wait for its writer.
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
        except ValueError as error:  # the name contains a zero byte
            raise ImageError(self.source, str(error)) from error
        if len(data) < length:
            raise ImageError(self.source, f"expected {length} bytes, got {len(data)}")
        return data


def _open_at_once(path: str, flags: int) -> int:
    return os.open(path, flags | getattr(os, "O_NONBLOCK", 0))


class PhotosRoot:
    """Folders, one of which must contain each photo once symbolic links are resolved."""

    def __init__(self, *folders: Path) -> None:
        """Resolve the folders themselves, which may be symbolic links."""
        self.folders = tuple(Path(os.path.realpath(folder)) for folder in folders)
        # "/" stays "/".
        self._prefixes = tuple(os.path.join(folder, "") for folder in self.folders)  # noqa: PTH118

    def holds(self, path: Path) -> bool:
        """Whether a folder contains a photo's file; resolves the path anew at each call."""
        try:
            return os.path.realpath(path).startswith(self._prefixes)
        except ValueError:  # the name contains a zero byte
            return False


class ListedPhotos:
    """Checks many photos against a `PhotosRoot`, resolving each folder of photos once."""

    def __init__(self, root: PhotosRoot) -> None:
        """Start with an empty cache; use one object for one pass over a data set."""
        self._root = root
        self._holds_folder = lru_cache(_FOLDERS)(self._resolved)

    def holds(self, path: Path) -> bool:
        """Whether the root contains a photo's file."""
        if ".." in path.parts or path.is_symlink():
            return self._root.holds(path)
        return self._holds_folder(path.parent)

    def _resolved(self, folder: Path) -> bool:
        # Check a file in the folder, so that photos directly in the root are accepted.
        return self._root.holds(folder / "photo")


_FIRST_UNDECODED, _LAST_UNDECODED = 0xDC80, 0xDCFF


def name_fault(name: str) -> str | None:
    """Return why a file name cannot be the id of an item, or None if it can.

    Args:
        name: File name or path, as decoded by Python.

    Returns:
        The reason, or None if the name can be an id.
    """
    if _SURROGATE.search(name):
        return "the file name is not UTF-8; rename the file"
    if CONTROL_CHARACTER.search(name):
        return "the file name has a line break or another control character; rename the file"
    return None


def printable(name: str) -> str:
    """Escape control characters and bytes that are not UTF-8, as in a Python literal."""
    return _SURROGATE.sub(_escaped, CONTROL_CHARACTER.sub(_escaped, name))


def _escaped(found: re.Match[str]) -> str:
    code = ord(found.group())
    if _FIRST_UNDECODED <= code <= _LAST_UNDECODED:
        return f"\\x{code - 0xDC00:02x}"
    return found.group().encode("unicode_escape").decode("ascii")


# Columns of img2dataset: a failed download has no photo.
STATUS, FAILED = "status", "failed_"
# EXIF data reveal where and when a photo was taken, and metadata are part of public search results.
NOT_METADATA = frozenset({STATUS, "error_message", "exif"})


def first_of(names: Sequence[str], present: Iterable[str]) -> str | None:
    found = set(present)
    return next((name for name in names if name in found), None)


def metadata_of(row: Mapping[str, Any], taken: Iterable[str | None]) -> dict[str, Any]:
    """Return the metadata of a table row: all columns that have no other meaning.

    Args:
        row: Values by column name.
        taken: Names of columns that are not metadata.

    Returns:
        JSON values; dates and times are in ISO 8601. Bytes, NaN, empty values and pandas' own
        columns are omitted.
    """
    others = NOT_METADATA.union(name for name in taken if name is not None)
    plain = {
        name: _plain(value)
        for name, value in row.items()
        if name not in others and not name.startswith(_PANDAS_INDEX)
    }
    return {name: value for name, value in plain.items() if value is not None}


def _plain(value: object) -> Any:
    """Convert a value to its JSON equivalent, or to None if it has none."""
    if isinstance(value, str | bool | int):
        return value
    if isinstance(value, float | Decimal):
        return float(value) if math.isfinite(value) else None
    if isinstance(value, datetime | date | time):
        return value.isoformat()
    if isinstance(value, Mapping):
        fields = cast(Mapping[str, object], value)
        return {name: _plain(each) for name, each in fields.items()}
    if isinstance(value, list | tuple):
        return [_plain(each) for each in cast(list[object], value)]
    return None
