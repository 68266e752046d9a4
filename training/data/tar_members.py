"""The files inside of a tar, found by their headers; their bytes stay where they are.

Not `tarfile.TarFile`, which keeps every header in memory and takes a tar that was cut short
between two members, or inside of a header, for a whole one.
"""

from __future__ import annotations

import os
import tarfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import BinaryIO, NamedTuple

from aladin.errors import DataError

_BLOCK = tarfile.BLOCKSIZE
_GZIP = b"\x1f\x8b"
# A note is a block of its own that says something of the next member.
_LONG_NAME, _PAX = tarfile.GNUTYPE_LONGNAME, tarfile.XHDTYPE
_NOTES = (_LONG_NAME, tarfile.GNUTYPE_LONGLINK, _PAX, tarfile.XGLTYPE, tarfile.SOLARIS_XHDTYPE)
# A damaged length must not make us read gigabytes for a name.
_MAX_NOTE_BYTES = 2**20
# The digits of 2**64: no offset in a file has more.
_MAX_DIGITS = 20


class TarMember(NamedTuple):
    """A file in a tar.

    Attributes:
        name: as the tar has it; a byte that is not UTF-8 is a lone surrogate.
        offset: of its first byte in the tar.
        length: in bytes.
    """

    name: str
    offset: int
    length: int


def walk_tar(
    path: Path, file: BinaryIO, on_link: Callable[[str], None] | None = None
) -> Iterator[TarMember]:
    """Yield the files of a tar in their order; folders and links are passed over.

    Args:
        path: named in errors.
        file: the tar, open for reading.
        on_link: called with the name of each link.

    Raises:
        DataError: not a tar, damaged or cut short, which says up to where it was whole.
    """
    size = os.fstat(file.fileno()).st_size
    position, whole = 0, f"not one member of its {size} bytes is whole"
    about_next: dict[str, str] = {}
    while True:
        info = _header(path, file, position, whole)
        if info is None:
            return
        name = about_next.get("path", info.name)
        start = position + _BLOCK
        length = int(about_next.get("size", info.size)) if _has_content(info) else 0
        if length < 0 or start + length > size:
            raise DataError(path, None, f"cut short inside of {name!r}; {whole}")
        position = start + -(-length // _BLOCK) * _BLOCK
        if info.type in _NOTES:
            if length > _MAX_NOTE_BYTES:
                raise DataError(path, None, f"damaged: a name of {length} bytes; {whole}")
            about_next |= _note(path, info, os.pread(file.fileno(), length, start))
            continue
        if info.isreg():
            _refuse_unreadable(path, info, name, about_next)
            yield TarMember(name, start, length)
        elif on_link is not None and (info.issym() or info.islnk()):
            on_link(name)
        about_next = {}
        whole = f"whole up to {name!r}, that is byte {position} of {size}"


def _header(path: Path, file: BinaryIO, position: int, whole: str) -> tarfile.TarInfo | None:
    """Read the header at a position; None at the mark of the end."""
    block = os.pread(file.fileno(), _BLOCK, position)
    if position == 0 and (len(block) < _BLOCK or block.startswith(_GZIP)):
        what = "it is compressed" if block.startswith(_GZIP) else f"{len(block)} bytes"
        raise DataError(path, None, f"not a tar: {what}")
    if len(block) < _BLOCK:
        raise DataError(path, None, f"cut short, it has no end mark; {whole}")
    if not block.strip(b"\0"):
        return None
    try:
        return tarfile.TarInfo.frombuf(block, "utf-8", "surrogateescape")
    except tarfile.HeaderError as error:
        what = "not a tar" if position == 0 else f"damaged; {whole}"
        raise DataError(path, None, f"{what} ({error})") from None


def _has_content(info: tarfile.TarInfo) -> bool:
    """Whether bytes follow the header; the length of a link or a folder says nothing."""
    return info.isreg() or info.type in _NOTES or info.type not in tarfile.SUPPORTED_TYPES


def _note(path: Path, info: tarfile.TarInfo, content: bytes) -> dict[str, str]:
    if info.type == _LONG_NAME:
        return {"path": content.rstrip(b"\0").decode("utf-8", "surrogateescape")}
    return _pax_records(path, content) if info.type == _PAX else {}


def _pax_records(path: Path, content: bytes) -> dict[str, str]:
    """Parse lines of ``LENGTH KEY=VALUE``, whose length counts the whole line.

    Raises:
        DataError: If a length is missing, does not end at a line end within the header, or leaves
            no room for a key, or if a size is not a number.
    """
    records: dict[str, str] = {}
    while content.strip(b"\0"):
        digits = content[: _MAX_DIGITS + 1].split(b" ", 1)[0]
        length = int(digits) if _is_number(digits) else 0
        line = content[:length]
        key, equals, value = line[len(digits) + 1 : -1].partition(b"=")
        # Each round has to use up bytes: a record of length 0 would be read for ever.
        if not (len(line) == length and line.endswith(b"\n") and key and equals) or (
            key == b"size" and not _is_number(value)
        ):
            raise DataError(
                path, None, f"damaged: a pax header {content[:20]!r}, expected LENGTH KEY=VALUE"
            )
        records[key.decode("utf-8", "surrogateescape")] = value.decode("utf-8", "surrogateescape")
        content = content[length:]
    return records


def _is_number(digits: bytes) -> bool:
    return digits.isdigit() and len(digits) <= _MAX_DIGITS


def _refuse_unreadable(path: Path, info: tarfile.TarInfo, name: str, about: dict[str, str]) -> None:
    if info.type == tarfile.GNUTYPE_SPARSE or any(key.startswith("GNU.sparse") for key in about):
        raise DataError(path, None, f"{name!r} is stored sparse, which cannot be read in place")
