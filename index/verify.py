"""Compares every byte of an index with the checksums that were taken when it was built."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from pathlib import Path

from aladin.errors import IndexCorruptError
from aladin.progress import NullProgress, Progress
from index.layout import MODEL, generation_folder, live_generation, published_generations
from index.manifest import FileEntry, read_manifest

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
    """Read and hash every file of every published generation, and of the model.

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
    total = sum(entry.bytes for entry in expected.values())
    progress.start(total, "bytes")
    damaged: dict[Path, str] = {}
    for file, entry in expected.items():
        fault = _fault(file, entry, progress)
        if fault is not None:
            damaged[file] = fault
    if damaged:
        first, *others = damaged
        also = "".join(f"; {file}: {damaged[file]}" for file in others)
        raise IndexCorruptError(first, damaged[first] + also)
    return VerifyReport(generations=generations, files=len(expected), bytes=total)


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
