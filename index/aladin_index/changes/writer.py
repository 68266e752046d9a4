"""Adds items to and removes items from the live generation; durable on return."""

from __future__ import annotations

import sqlite3
import threading
from collections.abc import Generator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple, Protocol

from aladin_index.changes.writable import Outcomes, WritableGeneration
from aladin_index.encode.encoded import AnyBatch
from aladin_index.format.disk import changes_lock
from aladin_index.format.layout import live_generation
from aladin_network.errors import (
    IndexWriteError,
    SearchIndexError,
    UnknownItemError,
)
from aladin_network.types import OnDuplicate, Target


@dataclass(frozen=True, kw_only=True)
class Revision:
    """Changes of one collection that belong together, planned for one generation.

    Attributes:
        removed: Rows to remove, of the generation or added; those that were removed meanwhile are
            ignored.
        new: Items to add after the removals, unless others have their ids by then; or None.
    """

    generation: int
    removed: Sequence[int] = ()
    new: AnyBatch | None = None
    file_states: Mapping[int, str] = field(default_factory=dict[int, str])


class OtherGenerationError(SearchIndexError):
    """A revision was planned for a generation that is no longer live; nothing was applied."""


class AddReport(NamedTuple):
    """Result of adding items.

    Attributes:
        ids: Ids by what became of their items: added, put in the place of another item, or not
            taken, as the other was kept; each once per occurrence.
    """

    generation: int
    ids: Outcomes


class DeleteReport(NamedTuple):
    """Result of deleting items.

    Attributes:
        generation: Generation that was changed.
        deleted: Ids that were deleted.
        missing: Ids that did not exist.
    """

    generation: int
    deleted: list[str]
    missing: list[str]


class ItemWriter(Protocol):
    """Adds and removes items; durable on return, see `ChangesWriter`."""

    def known(self, target: Target, ids: Sequence[str]) -> set[str]:
        """Return the ids among `ids` that are in the index."""
        ...

    def add(self, target: Target, new: AnyBatch, on_duplicate: OnDuplicate) -> AddReport:
        """Add items atomically."""
        ...

    def delete(
        self, target: Target, ids: Sequence[str], *, ignore_missing: bool = False
    ) -> DeleteReport:
        """Remove items atomically."""
        ...

    def close(self) -> None:
        """Release all resources."""
        ...


class ChangesWriter:
    """Changes an index; thread-safe, and safe beside any number of other processes.

    A call is applied whole or not at all, also where the process is killed in it. It is applied
    to the generation that is live then, and when it returns it is on the disk and every search
    that begins sees it.

    Where the folder of the index was replaced, as by a backup, the next call goes to the one that
    is there now.
    """

    def __init__(self, root: Path, model_id: str) -> None:
        self._root = root
        self._model_id = model_id
        self._lock = threading.Lock()
        self._live: WritableGeneration | None = None

    def close(self) -> None:
        with self._lock:
            self._close()

    def known(self, target: Target, ids: Sequence[str]) -> set[str]:
        """Return the ids among `ids` that are in the index.

        Raises:
            NoSuchTargetError: If the index has no such collection.
        """
        with self._exclusive() as live:
            collection = live.collection(target)
            return {item_id for item_id in ids if collection.live_row(item_id) is not None}

    def add(self, target: Target, new: AnyBatch, on_duplicate: OnDuplicate) -> AddReport:
        """Add items atomically.

        Args:
            target: Collection to add to.
            new: Items encoded by the index's own model; an id may occur twice.
            on_duplicate: What to do if an id exists already: "error" rejects the whole call,
                "replace" replaces the old item by the new one, "skip" keeps the old one.

        Raises:
            DuplicateItemError: If an id exists already, and that is an error.
            NoSuchTargetError: If the index has no such collection.
            IndexMismatchError: If the index was built with another model.
            ShapeError: If the encodings do not have the index's dimensions.
            InputError: If too many distinct metadata fields would have an index for filters.
            IndexWriteError: If the disk is full, or cannot be written.
        """
        with self._exclusive() as live:
            collection = live.collection(target)
            new.check_fits(collection.entry)
            collection.check_fields(new.items)
            for photo in new.photos:
                photo.write(self._root)
            with collection.transaction() as connection:
                return AddReport(live.generation, collection.add(connection, new, on_duplicate))

    def delete(
        self, target: Target, ids: Sequence[str], *, ignore_missing: bool = False
    ) -> DeleteReport:
        """Remove items atomically.

        Args:
            target: Collection to remove from.
            ids: Ids of the items.
            ignore_missing: Whether to continue if an id does not exist; otherwise nothing of the
                call is applied.

        Raises:
            UnknownItemError: If an id does not exist, and that is an error.
            NoSuchTargetError: If the index has no such collection.
            IndexMismatchError: If the index was built with another model.
            IndexWriteError: If the disk is full, or cannot be written.
        """
        with self._exclusive() as live:
            collection = live.collection(target)
            report = DeleteReport(live.generation, [], [])
            with collection.transaction():
                for item_id in dict.fromkeys(ids):
                    row = collection.live_row(item_id)
                    if row is None and not ignore_missing:
                        raise UnknownItemError(target, item_id)
                    if row is not None:
                        collection.remove(row)
                    (report.missing if row is None else report.deleted).append(item_id)
            return report

    def revise(self, target: Target, revision: Revision) -> AddReport:
        """Remove and add items, and record states of files, atomically.

        New items whose ids others have by now are not added; the report says which.

        Raises:
            OtherGenerationError: If another generation is live by now.
        """
        new = revision.new
        with self._exclusive() as live:
            if live.generation != revision.generation:
                raise OtherGenerationError(
                    f"{self._root}: expected generation {revision.generation}, generation "
                    f"{live.generation} is live by now"
                )
            collection = live.collection(target)
            if new is not None:
                collection.check_fields(new.items)
                new.check_fits(collection.entry)
            with collection.transaction() as connection:
                for row in filter(collection.is_live, revision.removed):
                    collection.remove(row)
                collection.record_files(revision.file_states)
                taken: Outcomes = {}
                if new is not None:
                    taken = collection.add(connection, new, "skip")
                return AddReport(live.generation, taken)

    @contextmanager
    def _exclusive(self) -> Generator[WritableGeneration]:
        """Wait for the lock, and open the live generation unless it is open."""
        try:
            with self._lock, changes_lock(self._root):
                generation = live_generation(self._root)
                live = self._live
                if live is None or live.generation != generation or not live.is_in_place:
                    self._close()
                    live = self._live = WritableGeneration(self._root, generation, self._model_id)
                yield live
                # A folder can be moved at any time. A change written to the moved folder must not
                # be acknowledged, because readers of the folder now at this path would not see it.
                if not live.is_in_place:
                    raise IndexWriteError(
                        self._root,
                        "the folder of the index was replaced during this call; nothing was "
                        "written to the new folder",
                    )
        except OSError as error:
            reason = f"{error.strerror or error}; nothing of this call was applied"
            raise IndexWriteError(error.filename or self._root, reason) from error
        except sqlite3.Error as error:
            reason = f"{error}; nothing of this call was applied"
            raise IndexWriteError(self._root, reason) from error

    def _close(self) -> None:
        if self._live is not None:
            self._live.close()
            self._live = None
