"""webdataset's tars, as img2dataset writes them: read as a stream, never unpacked.

The parts of a photo are consecutive in a tar and share one name up to the suffix:
``000000012.jpg``, ``000000012.txt`` (captions), ``000000012.json`` (other fields). If a tar has no
``.json``, the parquet of the same name beside it is used: ``00000.parquet``.

Members are found by their headers. `tarfile.TarFile` is not used: it keeps every header in memory,
and accepts a tar that is cut short between two members, or inside a header, as complete.
"""

from __future__ import annotations

import os
import tarfile
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from itertools import groupby
from pathlib import Path, PurePosixPath
from typing import Any, BinaryIO, NamedTuple

from aladin_network.errors import DataError, brief
from aladin_network.photos.files import PhotoFile, name_fault
from aladin_network.photos.formats import PHOTO_SUFFIXES, UNREADABLE_SUFFIXES
from aladin_training.data.fields import Place, readable
from aladin_training.data.records import LocatedRecord, Source, log_skipped, skipped_photo
from aladin_training.data.samples import (
    DETAILS,
    TEXT,
    Photo,
    SideFile,
    check_side_file,
    is_hidden,
    read_beside,
    sample_entries,
    split_of_folder,
)
from aladin_training.data.tables import open_parquet

_BLOCK = tarfile.BLOCKSIZE
_GZIP = b"\x1f\x8b"
# Extension headers: blocks that describe the next member.
_LONG_NAME, _PAX = tarfile.GNUTYPE_LONGNAME, tarfile.XHDTYPE
_NOTES = (_LONG_NAME, tarfile.GNUTYPE_LONGLINK, _PAX, tarfile.XGLTYPE, tarfile.SOLARIS_XHDTYPE)
# A damaged length must not lead to gigabytes being read for a name.
_MAX_NOTE_BYTES = 2**20
# Digits of 2**64: no offset in a file has more.
_MAX_DIGITS = 20

TAR = ".tar"
_COMPRESSED = (".tar.gz", ".tgz", ".tar.bz2", ".tbz2", ".tar.xz", ".txz", ".tar.zst")


class TarMember(NamedTuple):
    """A file in a tar; a byte of its name that is not UTF-8 is a lone surrogate."""

    name: str
    offset: int
    length: int


def walk_tar(
    path: Path, file: BinaryIO, on_link: Callable[[str], None] | None = None
) -> Iterator[TarMember]:
    """Yield the files of a tar in order; errors name the last position up to which it is valid."""
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
            raise DataError(path, None, f"cut short inside of {brief(name)}; {whole}")
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
        whole = f"whole up to {brief(name)}, that is byte {position} of {size}"


def _header(path: Path, file: BinaryIO, position: int, whole: str) -> tarfile.TarInfo | None:
    """Read the header at a position, or return None at the end mark."""
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
    """Tell whether bytes follow the header; the length of a link or a folder is meaningless."""
    return info.isreg() or info.type in _NOTES or info.type not in tarfile.SUPPORTED_TYPES


def _note(path: Path, info: tarfile.TarInfo, content: bytes) -> dict[str, str]:
    if info.type == _LONG_NAME:
        return {"path": content.rstrip(b"\0").decode("utf-8", "surrogateescape")}
    return _pax_records(path, content) if info.type == _PAX else {}


def _pax_records(path: Path, content: bytes) -> dict[str, str]:
    """Parse lines of ``LENGTH KEY=VALUE``, whose length counts the whole line."""
    records: dict[str, str] = {}
    while content.strip(b"\0"):
        digits = content[: _MAX_DIGITS + 1].split(b" ", 1)[0]
        length = int(digits) if _is_number(digits) else 0
        line = content[:length]
        key, equals, value = line[len(digits) + 1 : -1].partition(b"=")
        # Each round has to consume bytes: a record of length 0 would be read for ever.
        if not (len(line) == length and line.endswith(b"\n") and key and equals) or (
            key == b"size" and not _is_number(value)
        ):
            raise DataError(
                path,
                None,
                f"damaged: a pax header {brief(content[:20])}, expected LENGTH KEY=VALUE",
            )
        records[key.decode("utf-8", "surrogateescape")] = value.decode("utf-8", "surrogateescape")
        content = content[length:]
    return records


def _is_number(digits: bytes) -> bool:
    return digits.isdigit() and len(digits) <= _MAX_DIGITS


def _refuse_unreadable(path: Path, info: tarfile.TarInfo, name: str, about: dict[str, str]) -> None:
    if info.type == tarfile.GNUTYPE_SPARSE or any(key.startswith("GNU.sparse") for key in about):
        raise DataError(
            path, None, f"{brief(name)} is stored sparse, which cannot be read in place"
        )


def is_tar(path: Path) -> bool:
    """Tell whether a name is that of a tar, compressed or not."""
    return path.name.lower().endswith((TAR, *_COMPRESSED))


def read_tar(source: Source) -> Iterator[LocatedRecord]:
    """Read the photos of one tar; uris such as ``00000.tar/000000012.jpg`` begin with its name."""
    path = source.path.absolute()
    if path.name.lower().endswith(_COMPRESSED):
        raise DataError(
            source.path,
            None,
            "a compressed tar cannot be read in place; uncompress it, e.g. with gunzip",
        )
    with readable(path), path.open("rb") as file:
        yield from _Tar(replace(source, path=path), file).entries()


class _Tar:
    """One open tar."""

    def __init__(self, source: Source, file: BinaryIO) -> None:
        self._path = source.path
        self._on_skip = source.on_skip
        self._uri = source.uri(source.path)
        self._file = file
        self._rows: dict[str, dict[str, Any]] | None = None
        # Names of photos without .txt or .json so far, and of such files without a photo.
        self._bare: set[PurePosixPath] = set()
        self._orphans: set[PurePosixPath] = set()

    def entries(self) -> Iterator[LocatedRecord]:
        # Nothing is unpacked, so an absolute name is as safe as any other.
        named = (
            (PurePosixPath(member.name.lstrip("/")), member)
            for member in walk_tar(self._path, self._file, self._skip_link)
        )
        shown = (pair for pair in named if _is_shown(pair[0]) and self._has_valid_name(pair[0]))
        for stem, sample in groupby(shown, key=lambda pair: pair[0].with_suffix("")):
            yield from self._sample(stem, list(sample))

    def _sample(
        self, stem: PurePosixPath, members: list[tuple[PurePosixPath, TarMember]]
    ) -> Iterator[LocatedRecord]:
        beside = read_beside(
            (
                SideFile(self._uri / name, self._place(name), partial(self._read, member, name))
                for name, member in members
            ),
            self._on_skip,
        )
        suffixes = {name: name.suffix.lower() for name, _ in members}
        for name, suffix in suffixes.items():
            if suffix in UNREADABLE_SUFFIXES:
                self._skip(name, UNREADABLE_SUFFIXES[suffix])
        photos = [pair for pair in members if suffixes[pair[0]] in PHOTO_SUFFIXES]
        has_more = not {TEXT, DETAILS}.isdisjoint(suffixes.values())
        self._refuse_torn(stem, bool(photos), has_more)
        if beside.details is None and photos:
            beside = beside._replace(details=self._row(stem.name))
        for name, member in photos:
            file = PhotoFile(self._path, member.offset, member.length)
            photo = Photo(self._uri / name, file, self._place(name), in_tar=True)
            yield from sample_entries(photo, beside, self._on_skip)

    def _skip(self, name: PurePosixPath, reason: str) -> None:
        uri = self._uri / name
        self._on_skip(skipped_photo(uri, reason, split_of_folder(uri)))

    def _skip_link(self, name: str) -> None:
        path = PurePosixPath(name.lstrip("/"))
        if _is_shown(path) and _is_photo(path):
            self._skip(path, "a link inside of a tar, which is not followed")

    def _has_valid_name(self, name: PurePosixPath) -> bool:
        """Tell whether a member's name is UTF-8; a photo with another name is skipped."""
        try:
            str(name).encode("utf-8")
        except UnicodeEncodeError:
            if _is_photo(name):
                self._skip(name, name_fault(str(name)) or "")
            return False
        return True

    def _refuse_torn(self, stem: PurePosixPath, has_photo: bool, has_more: bool) -> None:
        """Refuse a tar that is not sorted, whose captions would be lost silently."""
        if has_photo == has_more:
            return
        mine, others = (self._bare, self._orphans) if has_photo else (self._orphans, self._bare)
        mine.add(stem)
        if stem in others:
            raise self._place(stem).error(
                "its photo and its .txt or .json do not follow one another; "
                "write the tar sorted, e.g. with tar --sort=name"
            )

    def _row(self, key: str) -> dict[str, Any] | None:
        """Return the row of a photo in img2dataset's parquet beside the tar."""
        if self._rows is None:
            sidecar = self._path.with_suffix(".parquet")
            rows = open_parquet(sidecar, log_skipped).rows if sidecar.is_file() else iter(())
            self._rows = {str(row["key"]): row for _, row in rows if row.get("key") is not None}
        return self._rows.get(key)

    def _read(self, member: TarMember, name: PurePosixPath) -> bytes:
        check_side_file(member.length, self._place(name))
        return os.pread(self._file.fileno(), member.length, member.offset)

    def _place(self, name: PurePosixPath) -> Place:
        return Place(self._path, part=str(name))


def _is_shown(name: PurePosixPath) -> bool:
    return bool(name.name) and not is_hidden(name)


def _is_photo(name: PurePosixPath) -> bool:
    suffix = name.suffix.lower()
    return suffix in PHOTO_SUFFIXES or suffix in UNREADABLE_SUFFIXES
