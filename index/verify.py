"""Compares every byte of an index with the checksums that were taken when it was built.

What was added later has none: the databases of the changes are read from end to end by SQLite,
which notices a page that is broken but not a value that is another, and an uploaded photo is named
by the sha256 of its bytes.
"""

from __future__ import annotations

import hashlib
import sqlite3
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

from aladin.errors import IndexCorruptError
from aladin.progress import NullProgress, Progress
from index.changes.database import open_to_read
from index.layout import (
    CHANGES,
    GENERATIONS,
    MODEL,
    PHOTOS,
    generation_folder,
    live_generation,
    published_generations,
)
from index.manifest import FileEntry, read_manifest
from index.side import ITEMS

_BYTES_AT_A_TIME = 2**22


@dataclass(frozen=True, kw_only=True)
class VerifyReport:
    """A sound index.

    Attributes:
        generations: that were verified, oldest first.
        files: number of files.
        bytes: that were read.
    """

    generations: list[int]
    files: int
    bytes: int


def verify_index(path: Path, progress: Progress | None = None) -> VerifyReport:
    """Read every file of every published generation, of its changes, and of the model.

    Args:
        path: of the index.
        progress: advanced with the bytes read.

    Raises:
        IndexNotReadyError: nothing was published yet.
        IndexMismatchError: a generation is of another schema version.
        IndexCorruptError: files are not as they were built; its message names all of them.
    """
    progress = progress or NullProgress()
    live_generation(path)
    expected: dict[Path, FileEntry] = {}
    generations = published_generations(path)
    for generation in generations:
        folder = generation_folder(path, generation)
        manifest = read_manifest(folder)
        expected |= {path / MODEL / name: entry for name, entry in manifest.model.files.items()}
        expected |= {folder / name: entry for name, entry in manifest.files.items()}
    expected |= _uploaded_photos(path)
    total = sum(entry.bytes for entry in expected.values())
    progress.start(total, "bytes")
    damaged: dict[Path, str] = {}
    for file, entry in expected.items():
        fault = _fault(file, entry, progress)
        if fault is not None:
            damaged[file] = fault
    databases = sorted((path / CHANGES).glob("*/*.sqlite"))
    damaged |= {file: fault for file in databases if (fault := _database_fault(file))}
    if damaged:
        first, *others = damaged
        also = "".join(f"; {file}: {damaged[file]}" for file in others)
        raise IndexCorruptError(first, damaged[first] + also)
    return VerifyReport(generations=generations, files=len(expected) + len(databases), bytes=total)


def _uploaded_photos(root: Path) -> dict[Path, FileEntry]:
    """Find the uploaded photos that items name, there or not."""
    generations = root.glob(f"{GENERATIONS}/*/images/{ITEMS}")
    names: set[str] = set()
    for file in (*generations, *root.glob(f"{CHANGES}/*/images.sqlite")):
        try:
            with closing(open_to_read(file)) as connection:
                select = "SELECT path FROM items WHERE path GLOB ?"
                names |= {name for (name,) in connection.execute(select, (f"{PHOTOS}/*",))}
        except sqlite3.Error:
            continue  # the database is compared by itself, and named
    photos: dict[Path, FileEntry] = {}
    for name in sorted(names):
        file = root / name
        length = file.stat().st_size if file.exists() else 0
        photos[file] = FileEntry(bytes=length, sha256=file.name)
    return photos


def _database_fault(file: Path) -> str | None:
    """Let SQLite read a database to its end; say what is wrong with it, or None."""
    try:
        with closing(open_to_read(file)) as connection:
            found = [line for (line,) in connection.execute("PRAGMA integrity_check(1)")]
    except sqlite3.Error as error:
        return f"cannot be read ({error})"
    return None if found == ["ok"] else "; ".join(found)


def _fault(file: Path, entry: FileEntry, progress: Progress) -> str | None:
    """Say what is wrong with a file, or None."""
    digest, length = hashlib.sha256(), 0
    try:
        with file.open("rb") as stream:
            while part := stream.read(_BYTES_AT_A_TIME):
                digest.update(part)
                length += len(part)
                progress.advance(len(part))
    except OSError as error:
        return f"cannot be read ({error.strerror})"
    if length != entry.bytes:
        return f"expected {entry.bytes} bytes, got {length}"
    if digest.hexdigest() != entry.sha256:
        return f"expected sha256 {entry.sha256}, got {digest.hexdigest()}"
    return None
