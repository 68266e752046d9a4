"""A folder of photos with captions beside them, or of webdataset's tars, and patterns of files."""

from __future__ import annotations

import glob
import os
import re
import stat
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import cached_property, partial
from pathlib import Path, PurePosixPath

from aladin_network.errors import DataError
from aladin_network.photos.files import PhotoFile
from aladin_network.photos.formats import PHOTO_SUFFIXES, UNREADABLE_SUFFIXES
from aladin_training.data.fields import Place
from aladin_training.data.folder_rules import FolderRules
from aladin_training.data.records import LocatedRecord, Source, skipped_photo, unusable_beside
from aladin_training.data.samples import (
    DETAILS,
    TEXT,
    Photo,
    SideFile,
    read_beside,
    sample_entries,
    split_of_folder,
)
from aladin_training.data.sidecars import XMP, side_content, sidecar_details
from aladin_training.data.webdataset import is_tar, read_tar

_BRACES = re.compile(r"\{([^{}]*)\}")
_RANGE = re.compile(r"(\d+)\.\.(\d+)")


def expand(pattern: Path) -> list[Path]:
    """List the files of a path, with ``{00000..00099}``, ``{a,b}``, ``*``, ``?`` and ``[...]``."""
    if pattern.exists():
        return [pattern]
    files: list[Path] = []
    for path in _without_braces(str(pattern)):
        found = [path] if not glob.has_magic(path) else sorted(glob.glob(path))  # noqa: PTH207
        files += map(Path, found)
        if not found or not Path(found[0]).exists():
            raise DataError(path, None, "no such file or folder")
    return files


def common_folder(pattern: Path) -> Path:
    """Return the last folder of a path before its first ``{``, ``*``, ``?`` or ``[``."""
    if pattern.exists():
        return pattern.parent
    parts = pattern.parts[:-1]
    fixed = next((n for n, part in enumerate(parts) if re.search(r"[{*?\[]", part)), len(parts))
    return Path(*parts[:fixed])


def _without_braces(pattern: str) -> list[str]:
    braces = _BRACES.search(pattern)
    if braces is None:
        return [pattern]
    before, after = pattern[: braces.start()], pattern[braces.end() :]
    return [
        path
        for word in _alternatives(braces.group(1))
        for path in _without_braces(f"{before}{word}{after}")
    ]


def _alternatives(inside: str) -> list[str]:
    numbers = _RANGE.fullmatch(inside)
    if numbers is None:
        return inside.split(",")
    first, last = numbers.groups()
    width = len(first) if first.startswith("0") else 0
    return [f"{number:0{width}d}" for number in range(int(first), int(last) + 1)]


PassedOver = Callable[[Path, str], None]
# Beginning of the reason for which all that is below a folder is skipped.
UNREADABLE_FOLDER = "a folder that cannot be read"
_KINDS = {
    stat.S_IFIFO: "a pipe",
    stat.S_IFSOCK: "a socket",
    stat.S_IFCHR: "a device",
    stat.S_IFBLK: "a device",
}


def read_photo(source: Source) -> Iterator[LocatedRecord]:
    """Read one photo, with the files beside it."""
    path = source.path.absolute()
    return _photo(source, path, lambda name: path.with_name(name).is_file(), sidecars=True)


def read_folder(source: Source) -> Iterator[LocatedRecord]:
    """Read all photos below a folder, or all tars, sorted by path; hidden files are skipped.

    ``dog.txt`` beside ``dog.jpg`` holds its captions, one a line, and ``dog.json`` other fields;
    the id is the path in the folder. Files of other programs tell more, see
    `aladin_training.data.sidecars`. Links to folders are not followed. With the rules of a folder
    as people have it, a tar among photos is skipped.
    """
    return _Folder(source).entries()


class _Folder:
    """One pass over a folder of photos, or of tars."""

    def __init__(self, source: Source) -> None:
        self._source = source
        self._folder = source.path.absolute()
        self._first: dict[str, Path] = {}
        self._names: frozenset[str] = frozenset()
        self._is_any = False
        # Files that may belong to a photo, and those that do.
        self._beside: list[Path] = []
        self._used: set[Path] = set()

    def entries(self) -> Iterator[LocatedRecord]:
        for path, names in walk_files(self._folder, self._skip, self._source.rules):
            if is_tar(path):
                yield from self._tar(path)
            elif path.suffix.lower() in PHOTO_SUFFIXES:
                self._refuse_both("photo", path)
                has = partial(self._has, path.parent, names)
                yield from _photo(self._source, path, has, sidecars=self._has_sidecars(names))
            elif path.suffix.lower() in (TEXT, DETAILS, XMP):
                self._beside.append(path)
            else:
                self._other(path)
        for path in self._beside:
            if path not in self._used:
                self._other(path)

    def _has_sidecars(self, names: frozenset[str]) -> bool:
        """Tell whether any of the files of a folder may be one, once for all its photos."""
        if names is not self._names:
            self._names = names
            self._is_any = any(name.lower().endswith((XMP, DETAILS)) for name in names)
        return self._is_any

    def _has(self, folder: Path, names: frozenset[str], name: str) -> bool:
        """Tell whether there is a file, which is read if so."""
        if name in names and self._source.rules is not None:
            self._used.add(folder / name)
        return name in names

    def _tar(self, path: Path) -> Iterator[LocatedRecord]:
        if self._source.rules is not None and self._holds_photos:
            self._skip(path, "a tar among photos; name it as a source of its own")
            return
        self._refuse_both("tar", path)
        yield from read_tar(replace(self._source, path=path))

    def _other(self, path: Path) -> None:
        rules, unreadable = self._source.rules, UNREADABLE_SUFFIXES.get(path.suffix.lower())
        if unreadable is not None:
            self._skip(path, unreadable)
        elif rules is not None:
            rules.count_other(self._source.uri(path))

    def _skip(self, path: Path, reason: str) -> None:
        uri = self._source.uri(path)
        self._source.on_skip(skipped_photo(uri, reason, split_of_folder(uri)))

    @cached_property
    def _holds_photos(self) -> bool:
        """Whether there is a photo anywhere in the folder; looked for at the first tar."""
        rules = self._source.rules
        if "photo" in self._first or rules is None:
            return "photo" in self._first
        files = walk_files(self._folder, lambda path, reason: None, FolderRules(rules.exclude))  # noqa: ARG005
        return any(path.suffix.lower() in PHOTO_SUFFIXES for path, _ in files)

    def _refuse_both(self, kind: str, path: Path) -> None:
        self._first.setdefault(kind, path)
        if len(self._first) > 1:
            photo, tar = (self._first[each].relative_to(self._folder) for each in ("photo", "tar"))
            reason = (
                f"expected photos or tars, got both: {photo} and {tar}; name the tars as '*.tar'"
            )
            raise DataError(self._folder, None, reason)


def walk_files(
    folder: Path, passed_over: PassedOver | None = None, rules: FolderRules | None = None
) -> Iterator[tuple[Path, frozenset[str]]]:
    """Walk the files below a folder, each with the names of all files beside it.

    `passed_over` is called with the reason for each link and each folder that is not followed, and
    each photo or tar that is no regular file; without it, a folder that cannot be read is a
    DataError. Files and folders are told apart by the listing of their parent.
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


def _photo(
    source: Source, path: Path, has: Callable[[str], bool], *, sidecars: bool
) -> Iterator[LocatedRecord]:
    """Read a photo with the files beside it; `has` tells which there are."""

    def skip(file: Path, error: DataError) -> None:
        uri = source.uri(file)
        source.on_skip(unusable_beside(uri, error, split_of_folder(uri)))

    files = [each for suffix in (DETAILS, TEXT) if has((each := path.with_suffix(suffix)).name)]
    beside = read_beside(
        (SideFile(source.uri(file), Place(file), partial(side_content, file)) for file in files),
        source.on_skip,
    )
    if sidecars and source.rules is not None and source.rules.sidecars:
        # The details of the photo have been read; they may be Takeout's.
        own = path.with_suffix(DETAILS).name if beside.details != {} else None
        told = sidecar_details(path, lambda name: name != own and has(name), skip)
        beside = beside._replace(told=told)
    photo = Photo(source.uri(path), PhotoFile(path), Place(path), in_tar=False)
    return sample_entries(photo, beside, source.on_skip)
