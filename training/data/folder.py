"""A folder of photos with captions beside them, or of webdataset's tars."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path, PurePosixPath

from aladin.errors import DataError
from aladin.photo_file import PhotoFile
from training.data.columns import has_failed
from training.data.fields import Place
from training.data.records import Entry
from training.data.samples import (
    DETAILS,
    PHOTO_SUFFIXES,
    TEXT,
    parse_captions,
    parse_details,
    sample_record,
)
from training.data.webdataset import is_tar, read_tar


def read_folder(folder: Path) -> Iterator[Entry]:
    """Read all photos below a folder, or all tars, sorted by path; hidden files are skipped.

    ``dog.txt`` beside ``dog.jpg`` holds its captions, one a line, and ``dog.json`` what else is
    known of it. Photos below the subfolders ``train``, ``val`` and ``test`` belong to these
    splits.

    Raises:
        DataError: a tar or a file beside a photo cannot be used, or there are tars and photos.
    """
    folder = folder.absolute()
    first_photo: Path | None = None
    first_tar: Path | None = None
    for path, names in walk_files(folder):
        if is_tar(path):
            first_tar = first_tar or path
        elif path.suffix.lower() in PHOTO_SUFFIXES:
            first_photo = first_photo or path
        else:
            continue
        if first_photo and first_tar:
            found = f"{first_photo.relative_to(folder)} and {first_tar.relative_to(folder)}"
            reason = f"expected photos or tars, got both: {found}; name the tars as '*.tar'"
            raise DataError(folder, None, reason)
        if first_tar:
            yield from read_tar(path, folder)
        else:
            yield from _photo(path, names, folder)


def walk_files(folder: Path) -> Iterator[tuple[Path, frozenset[str]]]:
    """Walk the files below a folder, each with the names of all files beside it.

    What is a folder and what a file is known from its parent's listing: no file is looked up.
    """
    try:
        with os.scandir(folder) as listing:
            entries = sorted(listing, key=lambda entry: entry.name)
    except OSError as error:
        raise DataError(folder, None, error.strerror or "cannot be read") from error
    shown = [entry for entry in entries if not entry.name.startswith(".")]
    names = frozenset(entry.name for entry in shown if entry.is_file())
    for entry in shown:
        if entry.name in names:
            yield folder / entry.name, names
        elif entry.is_dir(follow_symlinks=False):  # links could lead round in a circle
            yield from walk_files(folder / entry.name)


def _photo(path: Path, names: frozenset[str], folder: Path) -> Iterator[Entry]:
    text, details = path.with_suffix(TEXT), path.with_suffix(DETAILS)
    place = Place(path)
    known = parse_details(_content(details), Place(details)) if details.name in names else {}
    if has_failed(known):
        return
    captions = parse_captions(_content(text), Place(text)) if text.name in names else None
    uri = PurePosixPath(path.relative_to(folder).as_posix())
    yield Entry(place, sample_record(uri, PhotoFile(path), captions, known, place))


def _content(file: Path) -> bytes:
    try:
        return file.read_bytes()
    except OSError as error:
        raise DataError(file, None, error.strerror or "cannot be read") from error
