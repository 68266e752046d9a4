"""webdataset's tars, as img2dataset writes them: streamed, never unpacked.

The parts of a photo follow one another in a tar and have one name up to the suffix:
``000000012.jpg``, ``000000012.txt`` (captions), ``000000012.json`` (all else). Where a tar has
no ``.json``, the parquet of the same name beside it stands in: ``00000.parquet``.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from itertools import groupby
from pathlib import Path, PurePosixPath
from typing import Any, BinaryIO

from aladin.errors import DataError
from aladin.names import name_fault
from aladin.photo_file import PhotoFile
from training.data.columns import has_failed
from training.data.fields import Place
from training.data.parquet import open_parquet
from training.data.records import Entry
from training.data.samples import (
    DETAILS,
    PHOTO_SUFFIXES,
    TEXT,
    is_hidden,
    parse_captions,
    parse_details,
    sample_record,
    split_of_folder,
)
from training.data.skipped import UNREADABLE_SUFFIXES, OnSkip, log_skipped, skipped_photo
from training.data.tar_members import TarMember, walk_tar

TAR = ".tar"
_COMPRESSED = (".tar.gz", ".tgz", ".tar.bz2", ".tbz2", ".tar.xz", ".txz", ".tar.zst")


def is_tar(path: Path) -> bool:
    """Whether a name is that of a tar, compressed or not."""
    return path.name.lower().endswith((TAR, *_COMPRESSED))


def read_tar(path: Path, root: Path, on_skip: OnSkip = log_skipped) -> Iterator[Entry]:
    """Read the photos of one tar; those that img2dataset could not download are skipped.

    Args:
        path: of the tar.
        root: folder that the photos' uris, such as ``00000.tar/000000012.jpg``, start from.
        on_skip: called with each member that looks like a photo and cannot be read: of another
            format, a link, or with a name that cannot be an id.

    Raises:
        DataError: the tar is compressed, damaged or cut short, its samples are torn apart, or
            a part of one cannot be used.
    """
    if path.name.lower().endswith(_COMPRESSED):
        raise DataError(
            path, None, "a compressed tar cannot be read in place; uncompress it, e.g. with gunzip"
        )
    path = path.absolute()
    try:
        with path.open("rb") as file:
            yield from _Tar(path, root.absolute(), file, on_skip).entries()
    except OSError as error:
        raise DataError(path, None, error.strerror or "cannot be read") from error


class _Tar:
    """One open tar."""

    def __init__(self, path: Path, root: Path, file: BinaryIO, on_skip: OnSkip) -> None:
        self._path = path
        self._on_skip = on_skip
        self._uri = PurePosixPath(path.relative_to(root).as_posix())
        self._file = file
        self._rows: dict[str, dict[str, Any]] | None = None
        # Names whose photo, and whose .txt or .json, was met without the other.
        self._bare: set[PurePosixPath] = set()
        self._orphans: set[PurePosixPath] = set()

    def entries(self) -> Iterator[Entry]:
        # A name says where to unpack to; one from the root on is no different here.
        named = (
            (PurePosixPath(member.name.lstrip("/")), member)
            for member in walk_tar(self._path, self._file, self._skip_link)
        )
        shown = (pair for pair in named if _is_shown(pair[0]) and self._has_sound_name(pair[0]))
        for stem, sample in groupby(shown, key=lambda pair: pair[0].with_suffix("")):
            yield from self._sample(stem, list(sample))

    def _sample(
        self, stem: PurePosixPath, members: list[tuple[PurePosixPath, TarMember]]
    ) -> Iterator[Entry]:
        captions: tuple[str, ...] | None = None
        details: dict[str, Any] | None = None
        for name, member in members:
            if name.suffix.lower() == TEXT:
                captions = parse_captions(self._read(member), self._place(name))
            elif name.suffix.lower() == DETAILS:
                details = parse_details(self._read(member), self._place(name))
        for name, _ in members:
            if (reason := UNREADABLE_SUFFIXES.get(name.suffix.lower())) is not None:
                self._skip(name, reason)
        photos = [pair for pair in members if pair[0].suffix.lower() in PHOTO_SUFFIXES]
        self._refuse_torn(stem, bool(photos), captions is not None or details is not None)
        if details is None and photos:
            details = self._row(stem.name)
        if details is not None and has_failed(details):
            return
        for name, member in photos:
            place = self._place(name)
            photo = PhotoFile(self._path, member.offset, member.length)
            record = sample_record(self._uri / name, photo, captions, details or {}, place)
            if (fault := name_fault(record.id)) is None:
                yield Entry(place, record)
            else:
                self._skip(name, fault)

    def _skip(self, name: PurePosixPath, reason: str) -> None:
        uri = self._uri / name
        self._on_skip(skipped_photo(uri, reason, split_of_folder(uri)))

    def _skip_link(self, name: str) -> None:
        path = PurePosixPath(name.lstrip("/"))
        if _is_shown(path) and _is_photo(path):
            self._skip(path, "a link inside of a tar, which is not followed")

    def _has_sound_name(self, name: PurePosixPath) -> bool:
        """Whether a member's name is UTF-8; a photo of another name is skipped."""
        try:
            str(name).encode("utf-8")
        except UnicodeEncodeError:
            if _is_photo(name):
                self._skip(name, name_fault(str(name)) or "")
            return False
        return True

    def _refuse_torn(self, stem: PurePosixPath, has_photo: bool, has_more: bool) -> None:
        """Refuse a tar that is not sorted: its captions would be lost without a word."""
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
        """Return what img2dataset's parquet beside the tar says of a photo."""
        if self._rows is None:
            sidecar = self._path.with_suffix(".parquet")
            rows = open_parquet(sidecar).rows if sidecar.is_file() else iter(())
            self._rows = {str(row["key"]): row for _, row in rows if row.get("key") is not None}
        return self._rows.get(key)

    def _read(self, member: TarMember) -> bytes:
        return os.pread(self._file.fileno(), member.length, member.offset)

    def _place(self, name: PurePosixPath) -> Place:
        return Place(self._path, part=str(name))


def _is_shown(name: PurePosixPath) -> bool:
    return bool(name.name) and not is_hidden(name)


def _is_photo(name: PurePosixPath) -> bool:
    suffix = name.suffix.lower()
    return suffix in PHOTO_SUFFIXES or suffix in UNREADABLE_SUFFIXES
