"""The generations of an index that are on the disk: what they are, and which one is live."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple, TypeVar

from aladin.errors import IndexCorruptError, IndexMismatchError, SearchIndexError
from index.changes.pending import PendingChanges, pending_changes
from index.evaluations import Evaluation, evaluations_file, read_evaluations
from index.layout import (
    CHANGES,
    CURRENT,
    generation_folder,
    live_generation,
    published_generations,
)
from index.manifest import MANIFEST, Manifest, read_manifest
from index.settings import Target

T = TypeVar("T")


class GenerationRecord(NamedTuple):
    """A generation that is on the disk.

    Attributes:
        manifest: what it consists of.
        published_at_s: when its files were finished, in seconds since 1970; None: an engine keeps
            it, which does not tell.
        pending: by side, what was added and deleted since.
        evaluations: of it, the newest first.
    """

    manifest: Manifest
    published_at_s: float | None
    pending: dict[Target, PendingChanges]
    evaluations: list[Evaluation]


class DamagedFile(NamedTuple):
    """A file that cannot be read.

    Attributes:
        name: below the index's folder.
        reason: in words.
    """

    name: str
    reason: str


class History(NamedTuple):
    """All generations, as far as they can be read.

    Attributes:
        current: the one that is to answer.
        current_since_s: when that was decided, in seconds since 1970; None: as above.
        generations: the newest first.
        damaged: what could not be read, and is left out.
    """

    current: int
    current_since_s: float | None
    generations: list[GenerationRecord]
    damaged: list[DamagedFile]


def read_history(root: Path) -> History:
    """Look at every generation; the files of searches are not opened.

    What is damaged is named, and does not hide the rest: here is where people look when something
    is wrong.

    Raises:
        IndexNotReadyError: nothing was published yet.
        IndexCorruptError: CURRENT is damaged.
    """
    current = live_generation(root)
    current_since_s = (root / CURRENT).stat().st_mtime
    reader = _Reader(root)
    numbers = reversed(published_generations(root))
    records = [record for number in numbers if (record := reader.record(number)) is not None]
    return History(current, current_since_s, records, reader.damaged)


class _Reader:
    """Reads what can be read.

    Attributes:
        damaged: what could not.
    """

    def __init__(self, root: Path) -> None:
        self._root = root
        self.damaged: list[DamagedFile] = []

    def record(self, number: int) -> GenerationRecord | None:
        """Look at one generation; None: nothing can be told of it, or it is gone by now."""
        folder = generation_folder(self._root, number)
        try:
            published_at_s = (folder / MANIFEST).stat().st_mtime
        except FileNotFoundError:
            if folder.exists():
                self.damaged.append(DamagedFile(self._name(folder / MANIFEST), "missing"))
            return None
        manifest = self._attempt(folder / MANIFEST, lambda: read_manifest(folder))
        if manifest is None:
            return None
        changes = self._root / CHANGES / folder.name
        pending = self._attempt(changes, lambda: pending_changes(self._root, number))
        file = evaluations_file(self._root, number)
        evaluations = self._attempt(file, lambda: read_evaluations(self._root, number))
        return GenerationRecord(manifest, published_at_s, pending or {}, evaluations or [])

    def _attempt(self, file: Path, read: Callable[[], T]) -> T | None:
        try:
            return read()
        except SearchIndexError as error:
            self.damaged.append(DamagedFile(self._name(file), _reason(error)))
            return None

    def _name(self, file: Path) -> str:
        return str(file.relative_to(self._root))


def _reason(error: SearchIndexError) -> str:
    """Say what is wrong without the path, which is nobody's business."""
    if isinstance(error, IndexCorruptError):
        return error.reason
    if isinstance(error, IndexMismatchError):
        return f"schema version: expected {error.expected}, got {error.actual}"
    return str(error)
