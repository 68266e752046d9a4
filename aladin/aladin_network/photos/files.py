"""Where the bytes of a photo are: a file of its own, or a part of a larger one.

The folder outside of which no photo is taken into an index, and none is served.

File names as ids: which of them cannot be one, and how such a name is printed.

Names that open_clip, img2dataset and clip-retrieval give to what a table says of photos.
"""

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


# Folders whose real path is remembered while a data set is read.
_FOLDERS = 1024


class PhotosRoot:
    """A folder that photos have to lie in after all links were followed."""

    def __init__(self, folder: Path) -> None:
        """Resolve the folder itself, which may be a link."""
        self.folder = Path(os.path.realpath(folder))
        self._prefix = os.path.join(self.folder, "")  # noqa: PTH118 - "/" stays "/"

    def holds(self, path: Path) -> bool:
        """Whether a photo's file lies in the folder; looks at the disk each time."""
        try:
            return os.path.realpath(path).startswith(self._prefix)
        except ValueError:  # a name with a zero byte is none
            return False


class ListedPhotos:
    """Asks a `PhotosRoot` about many photos: the folders that hold them are resolved once."""

    def __init__(self, root: PhotosRoot) -> None:
        """Remember nothing yet; an object serves one reading of a data set."""
        self._root = root
        self._holds_folder = lru_cache(_FOLDERS)(self._resolved)

    def holds(self, path: Path) -> bool:
        """Whether a photo's file lies in the root."""
        if ".." in path.parts or path.is_symlink():
            return self._root.holds(path)
        return self._holds_folder(path.parent)

    def _resolved(self, folder: Path) -> bool:
        # A file of that folder, so that the root itself counts as a place of photos.
        return self._root.holds(folder / "photo")


CONTROL_CHARACTER = re.compile(r"[\x00-\x1f\x7f-\x9f]")
# What Python makes of a byte of a file name that is not UTF-8, and any other half of a pair.
_SURROGATE = re.compile(r"[\ud800-\udfff]")
_FIRST_UNDECODED, _LAST_UNDECODED = 0xDC80, 0xDCFF


def name_fault(name: str) -> str | None:
    """Return why a file name cannot be the id of an item.

    Args:
        name: the name or path, as Python decodes it.

    Returns:
        The reason in words, or None if the name can be an id.
    """
    if _SURROGATE.search(name):
        return "the file name is not UTF-8; rename the file"
    if CONTROL_CHARACTER.search(name):
        return "the file name has a line break or another control character; rename the file"
    return None


def printable(name: str) -> str:
    """Escape control characters, and bytes that are not UTF-8, as in a Python literal."""
    return _SURROGATE.sub(_escaped, CONTROL_CHARACTER.sub(_escaped, name))


def _escaped(found: re.Match[str]) -> str:
    code = ord(found.group())
    if _FIRST_UNDECODED <= code <= _LAST_UNDECODED:
        return f"\\x{code - 0xDC00:02x}"
    return found.group().encode("unicode_escape").decode("ascii")


# Of several, the first that is there counts; the others are metadata.
PHOTO = ("image", "image_path", "filepath", "path", "file_name")
CAPTIONS = ("captions", "caption", "title", "text")
ID = ("id", "key")
SPLIT = "split"
# img2dataset's: of a download that failed there is no photo.
STATUS, SUCCESS = "status", "success"
# The name of a column in which pandas keeps its own row labels.
_PANDAS_INDEX = "__index_level_"
# The camera's notes say where and when a photo was taken; hits show metadata to everybody.
NOT_METADATA = frozenset({STATUS, "error_message", "exif"})


def first_of(names: Sequence[str], present: Iterable[str]) -> str | None:
    """Return the first of some names that is present."""
    found = set(present)
    return next((name for name in names if name in found), None)


def metadata_of(row: Mapping[str, Any], taken: Iterable[str | None]) -> dict[str, Any]:
    """Return what a row says beyond the columns that have a meaning of their own.

    Args:
        row: values by column.
        taken: columns that are something else.

    Returns:
        JSON values: dates and times in ISO 8601; without bytes, NaN, what is empty and what pandas
        adds.
    """
    others = NOT_METADATA.union(name for name in taken if name is not None)
    plain = {
        name: _plain(value)
        for name, value in row.items()
        if name not in others and not name.startswith(_PANDAS_INDEX)
    }
    return {name: value for name, value in plain.items() if value is not None}


def _plain(value: object) -> Any:
    """Return a value as JSON has it; None for what JSON has not."""
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
