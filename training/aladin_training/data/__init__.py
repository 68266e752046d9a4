"""Readers of data sets, each chosen by the path: a table, to which a new reader adds its line.

The columns of tables are described in ``fields.py``, other formats in their readers.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

from aladin_network.errors import DataError
from aladin_network.photos.formats import PHOTO_SUFFIXES, UNREADABLE_SUFFIXES
from aladin_training.data.folder import common_folder, expand, read_folder, read_photo
from aladin_training.data.folder_rules import FolderRules
from aladin_training.data.json_files import read_jsonl, read_karpathy
from aladin_training.data.precomp import is_precomp, read_precomp
from aladin_training.data.records import (
    LocatedRecord,
    OnSkip,
    Record,
    SkipLog,
    SkippedOfSplit,
    Source,
    collect,
    log_skipped,
    select,
)
from aladin_training.data.tables import TABLES, read_table
from aladin_training.data.webdataset import is_tar, read_tar

__all__ = ["KNOWN_FORMATS", "READERS", "Record", "iter_records", "read_records"]


class Reader(NamedTuple):
    """A format of data sets, and how its photos are read, in order."""

    name: str
    reads: Callable[[Path], bool]
    read: Callable[[Source], Iterator[LocatedRecord]]


def _suffixed(suffixes: Iterable[str]) -> Callable[[Path], bool]:
    known = frozenset(suffixes)
    return lambda path: path.suffix.lower() in known


def _is_folder_of_photos(path: Path) -> bool:
    return path.is_dir() and not is_precomp(path)


# The first that reads a path is taken.
READERS = (
    Reader("a folder", _is_folder_of_photos, read_folder),
    Reader("a photo", _suffixed(PHOTO_SUFFIXES), read_photo),
    Reader(".jsonl", _suffixed([".jsonl"]), read_jsonl),
    Reader("Karpathy .json", _suffixed([".json"]), read_karpathy),
    *(Reader(suffix, _suffixed([suffix]), read_table) for suffix in TABLES),
    Reader("a precomp folder of SCAN", is_precomp, read_precomp),
    Reader("webdataset .tar", is_tar, read_tar),
)
KNOWN_FORMATS = f"{', '.join(each.name for each in READERS[:-1])}, or {READERS[-1].name}"


def iter_records(
    source: Path | Sequence[Path],
    split: str | None = None,
    *,
    require_captions: bool = True,
    images: Path | None = None,
    on_skip: OnSkip = log_skipped,
    rules: FolderRules | None = None,
) -> Iterator[Record]:
    """Read a data set photo by photo, however large it is; only a Karpathy JSON is read at once.

    The caller has to check that ids are unique and that the files of photos exist.

    Args:
        source: File of one of the `KNOWN_FORMATS`, a pattern of such files, or a folder; or several
            of them, read one after another as one data set.
        split: Split to read, or None for all photos.
        require_captions: Skip photos without captions; searching photos needs none.
        images: Folder of a Karpathy JSON's photos, if it is not beside the file.
        on_skip: Called with each photo and caption of the split that cannot be used.
        rules: What is skipped in a folder of photos, see `read_folder`; None for a data set.

    Raises:
        DataError: If the source cannot be used, or at the end, if there was no photo or no such
            split.
    """
    skipped = SkippedOfSplit(split, on_skip)
    sources = [source] if isinstance(source, Path) else source
    # All are opened here, not when the first is at its end, to detect a missing one at once.
    opened = [_entries(Source(each, each, skipped, images, rules)) for each in sources]
    named = sources[0] if len(sources) == 1 else Path(f"{sources[0]} and {len(sources) - 1} more")
    entries = select(
        (entry for entries in opened for entry in entries),
        named,
        split,
        require_captions=require_captions,
        skipped=skipped,
    )
    return (entry.record for entry in entries)


def read_records(
    source: Path,
    split: str | None = None,
    *,
    require_captions: bool = True,
    require_photos: bool = True,
    images: Path | None = None,
) -> list[Record]:
    """Read a whole data set; photos and captions that cannot be used are skipped and logged.

    Args:
        source: See `iter_records`, as for the other arguments.
        split: Split to read, or None for all photos.
        require_captions: Skip photos without captions.
        require_photos: Skip photos whose file is missing; networks that read ready-made regions
            need no photos.
        images: Folder of a Karpathy JSON's photos.

    Raises:
        DataError: If `iter_records` raises it, more than half of the photos cannot be used, or, in
            a block of `strict_data`, one cannot.
    """
    log = SkipLog(source)
    skipped = SkippedOfSplit(split, log)
    entries = _entries(Source(source, source, skipped, images))
    chosen = select(entries, source, split, require_captions=require_captions, skipped=skipped)
    records = collect(chosen, skipped, require_photos=require_photos)
    log.end(len(records))
    return records


def _entries(source: Source) -> Iterator[LocatedRecord]:
    """Read a folder, or the files that a path stands for, each by the reader of its own format."""
    if source.path.is_dir():
        return _reader_of(source.path).read(source)
    found = expand(source.path)
    folder = next(filter(Path.is_dir, found), None)
    if folder is not None:
        raise DataError(folder, None, f"expected {KNOWN_FORMATS}")
    files = [(_reader_of(file), file) for file in found]
    files_of = replace(source, root=common_folder(source.path))
    return (each for reader, file in files for each in reader.read(replace(files_of, path=file)))


def _reader_of(path: Path) -> Reader:
    reader = next((each for each in READERS if each.reads(path)), None)
    if reader is None:
        expected = f"expected {KNOWN_FORMATS}"
        raise DataError(path, None, UNREADABLE_SUFFIXES.get(path.suffix.lower(), expected))
    return reader
