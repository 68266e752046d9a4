"""A folder of photos with captions beside them, or of webdataset's tars."""

from __future__ import annotations

import os
import stat
from collections.abc import Callable, Iterator
from pathlib import Path, PurePosixPath
from typing import TypeVar

from aladin_network.errors import DataError
from aladin_network.photos.files import PhotoFile, name_fault
from aladin_network.photos.formats import PHOTO_SUFFIXES, UNREADABLE_SUFFIXES
from aladin_training.data.fields import Place, download_failed
from aladin_training.data.folder_rules import FolderRules
from aladin_training.data.records import (
    LocatedRecord,
    OnSkip,
    log_skipped,
    skipped_photo,
    unusable_beside,
)
from aladin_training.data.samples import (
    DETAILS,
    TEXT,
    check_side_file,
    parse_captions,
    parse_details,
    sample_record,
    split_of_folder,
)
from aladin_training.data.webdataset import is_tar, read_tar

PassedOver = Callable[[Path, str], None]
# Beginning of the reason for which all that is below a folder is skipped.
UNREADABLE_FOLDER = "a folder that cannot be read"
Parsed = TypeVar("Parsed")
_KINDS = {
    stat.S_IFIFO: "a pipe",
    stat.S_IFSOCK: "a socket",
    stat.S_IFCHR: "a device",
    stat.S_IFBLK: "a device",
}


def read_photo(file: Path, folder: Path, on_skip: OnSkip = log_skipped) -> Iterator[LocatedRecord]:
    """Read one photo, with the files beside it.

    Args:
        file: The photo.
        folder: Folder that the photo's uri is relative to.
        on_skip: Called with the photo if its name cannot be an id, and with each file beside it
            that cannot be used.
    """
    path, folder = file.absolute(), folder.absolute()
    names = frozenset(
        each.name for each in (path.with_suffix(TEXT), path.with_suffix(DETAILS)) if each.is_file()
    )
    for entry in _photo(path, names, folder, on_skip):
        fault = name_fault(entry.record.id) or _path_fault(path)
        if fault is None:
            yield entry
        else:
            uri = PurePosixPath(path.relative_to(folder).as_posix())
            on_skip(skipped_photo(uri, fault, None))


def read_folder(
    folder: Path, on_skip: OnSkip = log_skipped, rules: FolderRules | None = None
) -> Iterator[LocatedRecord]:
    """Read all photos below a folder, or all tars, sorted by path; hidden files are skipped.

    ``dog.txt`` beside ``dog.jpg`` holds its captions, one on each line, and ``dog.json`` holds
    other fields; the id is the path in the folder. Photos below the subfolders ``train``, ``val``
    and ``test`` belong to these splits.

    Args:
        folder: Folder of the photos or tars.
        on_skip: Called with each file that looks like a photo and cannot be read, each broken
            link, each folder that cannot be read, and each link to a folder, which is not
            followed; and with each file beside a photo that cannot be used.
        rules: Decide what else is skipped, for a folder as people have it: a tar among photos is
            then skipped, too. None for a data set.

    Raises:
        DataError: If the folder cannot be read, or a tar; without rules, if there are tars and
            photos.
    """
    folder = folder.absolute()
    first_photo: Path | None = None
    first_tar: Path | None = None

    def skip(path: Path, reason: str) -> None:
        uri = PurePosixPath(path.relative_to(folder).as_posix())
        on_skip(skipped_photo(uri, reason, split_of_folder(uri)))

    for path, names in walk_files(folder, skip, rules):
        if is_tar(path):
            if rules is not None and first_tar is None and first_photo is None:
                first_photo = _any_photo(folder, rules)
            if rules is not None and first_photo is not None:
                skip(path, "a tar among photos; name it as a source of its own")
                continue
            first_tar = first_tar or path
        elif path.suffix.lower() in PHOTO_SUFFIXES:
            first_photo = first_photo or path
        else:
            if (unreadable := UNREADABLE_SUFFIXES.get(path.suffix.lower())) is not None:
                skip(path, unreadable)
            elif rules is not None:
                rules.count_other(PurePosixPath(path.relative_to(folder).as_posix()))
            continue
        if first_photo and first_tar:
            found = f"{first_photo.relative_to(folder)} and {first_tar.relative_to(folder)}"
            reason = f"expected photos or tars, got both: {found}; name the tars as '*.tar'"
            raise DataError(folder, None, reason)
        if first_tar:
            yield from read_tar(path, folder, on_skip)
        else:
            for entry in _photo(path, names, folder, on_skip):
                fault = name_fault(entry.record.id) or _path_fault(path)
                if fault is None:
                    yield entry
                else:
                    skip(path, fault)


def walk_files(
    folder: Path, passed_over: PassedOver | None = None, rules: FolderRules | None = None
) -> Iterator[tuple[Path, frozenset[str]]]:
    """Walk the files below a folder, each with the names of all files beside it.

    Files and folders are told apart by the listing of their parent, without a look-up for each.

    Args:
        folder: Folder to walk.
        passed_over: Called with the reason for each link that is broken or leads to a folder,
            each entry with the suffix of a photo or a tar that is not a regular file, and each
            folder below that cannot be read.
        rules: Decide what is skipped besides hidden files, or None for those alone.

    Raises:
        DataError: If the folder cannot be read, or, without `passed_over`, one below it.
    """
    return _walk(folder, PurePosixPath(), passed_over, rules)


def _walk(
    folder: Path, uri: PurePosixPath, passed_over: PassedOver | None, rules: FolderRules | None
) -> Iterator[tuple[Path, frozenset[str]]]:
    try:
        with os.scandir(folder) as listing:
            entries = sorted(listing, key=lambda entry: entry.name)
    except OSError as error:
        reason = error.strerror or "cannot be read"
        if passed_over is None or not uri.parts:
            raise DataError(folder, None, reason) from error
        passed_over(folder, f"{UNREADABLE_FOLDER} ({reason})")
        return
    if rules is None:
        shown = [entry for entry in entries if not entry.name.startswith(".")]
    else:
        shown = [entry for entry in entries if not rules.leaves_out(uri / entry.name)]
    names = frozenset(entry.name for entry in shown if _is_file(entry))
    for entry in shown:
        path = folder / entry.name
        if entry.name in names:
            yield path, names
        elif entry.is_dir(follow_symlinks=False):  # links could form a cycle
            yield from _walk(path, uri / entry.name, passed_over, rules)
        elif passed_over is not None and (reason := _no_file(entry)) is not None:
            passed_over(path, reason)


def _any_photo(folder: Path, rules: FolderRules) -> Path | None:
    """Return the first photo below a folder, or None if there is none."""
    files = walk_files(folder, lambda path, reason: None, FolderRules(rules.exclude))  # noqa: ARG005
    return next((path for path, _ in files if path.suffix.lower() in PHOTO_SUFFIXES), None)


def _is_file(entry: os.DirEntry[str]) -> bool:
    try:
        return entry.is_file()
    except OSError:  # a link to itself, or to a file that may not be looked up
        return False


def _no_file(entry: os.DirEntry[str]) -> str | None:
    """Return why an entry that is neither file nor folder is skipped, or None if it is no photo."""
    suffix = Path(entry.name).suffix.lower()
    is_photo = suffix in PHOTO_SUFFIXES or suffix in UNREADABLE_SUFFIXES
    is_expected = is_photo or is_tar(Path(entry.name))
    try:
        if entry.is_dir():
            return "a link to a folder, which is not followed; name that folder as a source"
        kind = _KINDS.get(stat.S_IFMT(entry.stat().st_mode), "something else")
    except OSError:
        kind = None  # of a link that leads nowhere
    if not entry.is_symlink():
        return f"{kind}, not a file" if is_expected and kind else None
    # An entry without a suffix may have been a folder of photos.
    if not (is_expected or not suffix):
        return None
    return "a broken link" if kind is None else f"a link to {kind}, not a file"


def _path_fault(path: Path) -> str | None:
    """Return why the path of a photo cannot be stored, although its id can."""
    try:
        str(path).encode("utf-8")
    except UnicodeEncodeError:
        return name_fault(str(path))
    return None


def _photo(
    path: Path, names: frozenset[str], folder: Path, on_skip: OnSkip
) -> Iterator[LocatedRecord]:
    """Read a photo with the files beside it; those that cannot be used are skipped."""
    uri = PurePosixPath(path.relative_to(folder).as_posix())
    place = Place(path)

    def reject(file: Path, error: DataError) -> None:
        beside = PurePosixPath(file.relative_to(folder).as_posix())
        on_skip(unusable_beside(beside, error, split_of_folder(uri)))

    def parsed(suffix: str, parse: Callable[[bytes, Place], Parsed]) -> Parsed | None:
        file = path.with_suffix(suffix)
        if file.name in names:
            try:
                return parse(_content(file), Place(file))
            except DataError as error:
                reject(file, error)
        return None

    known = parsed(DETAILS, parse_details) or {}
    if download_failed(known):
        return
    captions = parsed(TEXT, parse_captions)
    try:
        record = sample_record(uri, PhotoFile(path), captions, known, place, in_tar=False)
    except DataError as error:
        reject(path.with_suffix(DETAILS), error)
        record = sample_record(uri, PhotoFile(path), captions, {}, place, in_tar=False)
    yield LocatedRecord(place, record)


def _content(file: Path) -> bytes:
    try:
        check_side_file(file.stat().st_size, Place(file))
        return file.read_bytes()
    except OSError as error:
        raise DataError(file, None, error.strerror or "cannot be read") from error
