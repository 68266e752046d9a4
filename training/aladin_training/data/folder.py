"""A folder of photos with captions beside them, or of webdataset's tars."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path, PurePosixPath

from aladin_network.errors import DataError
from aladin_network.photos.files import PhotoFile, name_fault
from aladin_training.data.fields import Place, download_failed
from aladin_training.data.records import (
    UNREADABLE_SUFFIXES,
    LocatedRecord,
    OnSkip,
    log_skipped,
    skipped_photo,
)
from aladin_training.data.samples import (
    DETAILS,
    PHOTO_SUFFIXES,
    TEXT,
    parse_captions,
    parse_details,
    sample_record,
    split_of_folder,
)
from aladin_training.data.webdataset import is_tar, read_tar

PassedOver = Callable[[Path, str], None]


def read_folder(folder: Path, on_skip: OnSkip = log_skipped) -> Iterator[LocatedRecord]:
    """Read all photos below a folder, or all tars, sorted by path; hidden files are skipped.

    ``dog.txt`` beside ``dog.jpg`` holds its captions, one on each line, and ``dog.json`` holds
    other fields. Photos below the subfolders ``train``, ``val`` and ``test`` belong to these
    splits.

    Args:
        folder: Folder of the photos or tars.
        on_skip: Called with each file that looks like a photo and cannot be read, each broken
            link, and each link to a folder, which is not followed.

    Raises:
        DataError: If a tar or a file beside a photo cannot be used, or there are tars and photos.
    """
    folder = folder.absolute()
    first_photo: Path | None = None
    first_tar: Path | None = None

    def skip(path: Path, reason: str) -> None:
        uri = PurePosixPath(path.relative_to(folder).as_posix())
        on_skip(skipped_photo(uri, reason, split_of_folder(uri)))

    for path, names in walk_files(folder, skip):
        if is_tar(path):
            first_tar = first_tar or path
        elif path.suffix.lower() in PHOTO_SUFFIXES:
            first_photo = first_photo or path
        else:
            if (unreadable := UNREADABLE_SUFFIXES.get(path.suffix.lower())) is not None:
                skip(path, unreadable)
            continue
        if first_photo and first_tar:
            found = f"{first_photo.relative_to(folder)} and {first_tar.relative_to(folder)}"
            reason = f"expected photos or tars, got both: {found}; name the tars as '*.tar'"
            raise DataError(folder, None, reason)
        if first_tar:
            yield from read_tar(path, folder, on_skip)
        else:
            for entry in _photo(path, names, folder):
                fault = name_fault(entry.record.id) or _path_fault(path)
                if fault is None:
                    yield entry
                else:
                    skip(path, fault)


def walk_files(
    folder: Path, passed_over: PassedOver | None = None
) -> Iterator[tuple[Path, frozenset[str]]]:
    """Walk the files below a folder, each with the names of all files beside it.

    Files and folders are told apart by the listing of their parent, without a look-up for each.

    Args:
        folder: Folder to walk.
        passed_over: Called with the reason for each link that is broken or leads to a folder, and
            each entry with the suffix of a photo or a tar that is not a regular file.
    """
    try:
        with os.scandir(folder) as listing:
            entries = sorted(listing, key=lambda entry: entry.name)
    except OSError as error:
        raise DataError(folder, None, error.strerror or "cannot be read") from error
    shown = [entry for entry in entries if not entry.name.startswith(".")]
    names = frozenset(entry.name for entry in shown if _is_file(entry))
    for entry in shown:
        path = folder / entry.name
        if entry.name in names:
            yield path, names
        elif entry.is_dir(follow_symlinks=False):  # links could form a cycle
            yield from walk_files(path, passed_over)
        elif passed_over is not None and (reason := _no_file(entry)) is not None:
            passed_over(path, reason)


def _is_file(entry: os.DirEntry[str]) -> bool:
    try:
        return entry.is_file()
    except OSError:  # a link to itself, or to a file that may not be looked up
        return False


def _no_file(entry: os.DirEntry[str]) -> str | None:
    """Return why an entry that is neither file nor folder is skipped, or None if it is no photo."""
    suffix = Path(entry.name).suffix.lower()
    is_photo = suffix in PHOTO_SUFFIXES or suffix in UNREADABLE_SUFFIXES
    if not entry.is_symlink():
        return "not a regular file" if is_photo or is_tar(Path(entry.name)) else None
    try:
        if entry.is_dir():
            return "a link to a folder, which is not followed; name that folder as a source"
    except OSError:
        pass
    # An entry without a suffix may have been a folder of photos.
    return "a broken link" if is_photo or not suffix or is_tar(Path(entry.name)) else None


def _path_fault(path: Path) -> str | None:
    """Return why the path of a photo cannot be stored, although its id can."""
    try:
        str(path).encode("utf-8")
    except UnicodeEncodeError:
        return name_fault(str(path))
    return None


def _photo(path: Path, names: frozenset[str], folder: Path) -> Iterator[LocatedRecord]:
    text, details = path.with_suffix(TEXT), path.with_suffix(DETAILS)
    place = Place(path)
    known = parse_details(_content(details), Place(details)) if details.name in names else {}
    if download_failed(known):
        return
    captions = parse_captions(_content(text), Place(text)) if text.name in names else None
    uri = PurePosixPath(path.relative_to(folder).as_posix())
    yield LocatedRecord(place, sample_record(uri, PhotoFile(path), captions, known, place))


def _content(file: Path) -> bytes:
    try:
        return file.read_bytes()
    except OSError as error:
        raise DataError(file, None, error.strerror or "cannot be read") from error
