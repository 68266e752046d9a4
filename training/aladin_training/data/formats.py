"""The files that a source stands for, and the reader of each."""

from __future__ import annotations

import glob
import re
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

from aladin_network.errors import DataError
from aladin_network.photos.formats import PHOTO_SUFFIXES, UNREADABLE_SUFFIXES
from aladin_training.data.folder import read_folder, read_photo
from aladin_training.data.folder_rules import FolderRules
from aladin_training.data.json_files import read_jsonl, read_karpathy
from aladin_training.data.precomp import is_precomp, read_precomp
from aladin_training.data.records import LocatedRecord, OnSkip, log_skipped
from aladin_training.data.tables import Table, open_csv, open_parquet, open_tsv, table_entries
from aladin_training.data.webdataset import is_tar, read_tar

_BRACES = re.compile(r"\{([^{}]*)\}")
_RANGE = re.compile(r"(\d+)\.\.(\d+)")

TABLES: Mapping[str, Callable[[Path, OnSkip], Table]] = {
    ".csv": open_csv,
    ".tsv": open_tsv,
    ".parquet": open_parquet,
}
KNOWN_FORMATS = (
    "a folder, a photo, .jsonl, Karpathy .json, .csv, .tsv, .parquet, a precomp folder of SCAN, "
    "or webdataset .tar"
)


def expand(pattern: Path) -> list[Path]:
    """List the files that a path stands for; a path that exists stands for itself.

    Args:
        pattern: Path with ``{00000..00099}`` or ``{a,b}``, whose files all have to exist, or with
            ``*``, ``?`` or ``[...]``, which match existing files, sorted.

    Raises:
        DataError: If a named file does not exist.
    """
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


def read_entries(
    source: Path,
    images: Path | None = None,
    on_skip: OnSkip = log_skipped,
    rules: FolderRules | None = None,
) -> Iterator[LocatedRecord]:
    """Read the photos of any source.

    Args:
        source: Folder, file, or pattern of files, each read according to its own suffix.
        images: Folder of a Karpathy JSON's photos, or None if they are beside the file.
        on_skip: Called with each photo and caption that cannot be used, and each file of a folder
            or a tar that looks like a photo and cannot be read.
        rules: What is skipped in a folder of photos, see `read_folder`; None for a data set.

    Raises:
        DataError: If there is no such source, or its format is unknown; while reading, if what
            follows cannot be told apart.
    """
    if source.is_dir():
        return read_precomp(source) if is_precomp(source) else read_folder(source, on_skip, rules)
    files = expand(source)
    for file in files:
        suffix = file.suffix.lower()
        if suffix in UNREADABLE_SUFFIXES:
            raise DataError(file, None, UNREADABLE_SUFFIXES[suffix])
        if suffix not in (".jsonl", ".json", *TABLES, *PHOTO_SUFFIXES) and not is_tar(file):
            raise DataError(file, None, f"expected {KNOWN_FORMATS}")
    root = common_folder(source)
    return (entry for file in files for entry in _read_file(file, root, images, on_skip))


def _read_file(
    file: Path, root: Path, images: Path | None, on_skip: OnSkip
) -> Iterator[LocatedRecord]:
    if is_tar(file):
        return read_tar(file, root, on_skip)
    suffix = file.suffix.lower()
    if suffix in PHOTO_SUFFIXES:
        return read_photo(file, root, on_skip)
    if suffix == ".jsonl":
        return read_jsonl(file, on_skip)
    if suffix == ".json":
        return read_karpathy(file, images, on_skip)
    return table_entries(TABLES[suffix](file, on_skip), on_skip)
