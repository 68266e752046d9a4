"""The changes of a generation as a whole: how many there are, and what becomes of them."""

from __future__ import annotations

import sqlite3
from collections.abc import Generator, Mapping
from contextlib import closing, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from aladin.atomic import atomic_file, make_folder
from aladin.errors import IndexCorruptError, SearchIndexError
from index.changes.database import changes_database, changes_folder, open_to_read
from index.changes.lock import changes_lock
from index.layout import generation_folder, live_generation, published_generations
from index.manifest import read_manifest
from index.settings import TARGETS, Target

if TYPE_CHECKING:
    from index.building.publish import GoingLive


class PendingChanges(NamedTuple):
    """Changes of one side that `aladin index compact` would take into a new generation.

    Attributes:
        added: items that were added and are still there.
        removed: items of the generation that were removed or replaced.
    """

    added: int
    removed: int


def pending_changes(root: Path, generation: int | None = None) -> dict[Target, PendingChanges]:
    """Count the changes of a generation, by side; reads no item.

    Args:
        root: of the index.
        generation: on the disk; None: the live one.

    Raises:
        IndexNotReadyError: nothing was published yet.
        IndexCorruptError: the changes, or the manifest, cannot be read.
    """
    if generation is None:
        generation = live_generation(root)
    manifest = read_manifest(generation_folder(root, generation))
    pending: dict[Target, PendingChanges] = {}
    for target in manifest.targets:
        entry = manifest.side(target)
        assert entry is not None
        path = changes_database(root, generation, target)
        if not path.exists():
            pending[target] = PendingChanges(0, 0)
            continue
        try:
            with closing(open_to_read(path)) as connection:
                added, removed, of_added = connection.execute(
                    "SELECT (SELECT COUNT(*) FROM encodings), COUNT(*), "
                    "COUNT(*) FILTER (WHERE row >= ?) FROM removed",
                    (entry.count,),
                ).fetchone()
        except sqlite3.Error as error:
            raise IndexCorruptError(path, f"cannot be read ({error})") from error
        pending[target] = PendingChanges(added - of_added, removed - of_added)
    return pending


def rolled_back_changes(root: Path) -> dict[int, dict[Target, PendingChanges]]:
    """Count the changes of the generations that were rolled back, those after the live one.

    The next compaction that makes a generation removes them from the disk.

    Args:
        root: of the index.

    Returns:
        By generation and side; only what can be read.

    Raises:
        IndexNotReadyError: nothing was published yet.
    """
    live = live_generation(root)
    found: dict[int, dict[Target, PendingChanges]] = {}
    for number in published_generations(root):
        if number > live:
            try:
                found[number] = pending_changes(root, number)
            except SearchIndexError:  # a damaged one is no reason to stop
                found[number] = {}
    return found


def describe_changes(changes: Mapping[Target, PendingChanges]) -> str:
    """Put numbers of changes into words."""
    return (
        "; ".join(
            f"{each.added} {target} added, {each.removed} removed"
            for target, each in changes.items()
            if any(each)
        )
        or "none"
    )


def copy_changes(root: Path, from_generation: int, to_generation: int) -> None:
    """Give a generation the changes of another one with the same rows and token codecs.

    To be called while nobody can add or remove (`index.changes.lock`), before the generation
    becomes live.

    Args:
        root: of the index.
        from_generation: that has the changes.
        to_generation: that is to have them too.

    Raises:
        OSError: the disk is full, or cannot be written.
        sqlite3.Error: the same, met by the database.
    """
    for target in TARGETS:
        source = changes_database(root, from_generation, target)
        if not source.exists():
            continue
        make_folder(changes_folder(root, to_generation))
        with (
            atomic_file(changes_database(root, to_generation, target)) as partial,
            closing(open_to_read(source)) as old,
            closing(sqlite3.connect(partial)) as new,
        ):
            old.backup(new)


def with_changes_of(root: Path, from_generation: int) -> GoingLive:
    """Let a new generation with the rows of an old one go live together with its changes.

    Args:
        root: of the index.
        from_generation: the old one.

    Returns:
        What `index.building.publish.publish_generation` takes as `going_live`.
    """

    @contextmanager
    def going_live(generation: int) -> Generator[None]:
        with changes_lock(root):
            copy_changes(root, from_generation, generation)
            yield

    return going_live
