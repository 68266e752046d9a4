"""Removes from the disk what no search and no rollback can want any more."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path
from typing import NamedTuple

from aladin.errors import SearchIndexError
from index.changes.database import changes_database, open_to_read
from index.changes.generation_lease import sole_use
from index.changes.lock import changes_lock
from index.changes.pending import PendingChanges, pending_changes
from index.changes.uploaded_photos import sweep_photos
from index.disk import remove_folder
from index.evaluations import drop_evaluations
from index.layout import CHANGES, GENERATIONS, PHOTOS, generation_folder, published_generations
from index.manifest import read_manifest
from index.settings import TARGETS, Target
from index.side import ITEMS

# Commands whose generation has nothing of what was added to the one before.
_FROM_NEW_SOURCES = ("build", "import", "merge")


class Dropped(NamedTuple):
    """What became of the earlier generations of an index.

    Attributes:
        gone: generations that were removed from the disk.
        in_use: generations that would be, had nobody opened them.
        lost: changes, by generation that is gone and side, that no other generation has: of one
            that was rolled back, or replaced by a build, an import or a merge.
    """

    gone: list[int]
    in_use: list[int]
    lost: dict[int, dict[Target, PendingChanges]]


def drop_generations(root: Path, live: int, previous: int, keep: int) -> Dropped:
    """Remove earlier generations, with all that belongs to them; called by the only builder.

    Those between the previous generation and the live one were rolled back.

    Args:
        root: of the index.
        live: the live generation.
        previous: the one before it; the live one itself where nothing was replaced.
        keep: how many of the previous one and those before it stay.
    """
    published = published_generations(root)
    earlier = [number for number in published if number <= previous and number != live]
    kept = set(earlier[max(0, len(earlier) - keep) :])
    dropped = Dropped([], [], {})
    for number in published:
        if number >= live or number in kept:
            continue
        lost = _only_here(root, number, live, previous)
        with sole_use(root, number) as alone:
            if alone:
                remove_folder(root, generation_folder(root, number))
                if any(any(changes) for changes in lost.values()):
                    dropped.lost[number] = lost
            (dropped.gone if alone else dropped.in_use).append(number)
    left = set(published_generations(root))
    # A generation goes before its changes: without them it would not be what it was.
    for folder in (root / CHANGES).glob("[0-9]*"):
        if int(folder.name) not in left:
            remove_folder(root, folder)
    drop_evaluations(root)
    return dropped


def _only_here(root: Path, number: int, live: int, previous: int) -> dict[Target, PendingChanges]:
    """Count the changes of a generation that none after it took over."""
    try:
        if not previous < number < live:
            after = min(each for each in published_generations(root) if each > number)
            made_by = read_manifest(generation_folder(root, after)).made_by
            if made_by not in _FROM_NEW_SOURCES:
                return {}
        return pending_changes(root, number)
    except SearchIndexError:  # what is damaged goes as well
        return {}


def drop_photos(root: Path) -> int:
    """Remove uploaded photos that no generation names; called by the only builder.

    Returns:
        The number of files that are gone.
    """
    if not (root / PHOTOS).is_dir():
        return 0
    used: set[str] = set()
    for items in (root / GENERATIONS).glob(f"*/images/{ITEMS}"):
        used |= _photos_named(items)
    with changes_lock(root):
        for number in published_generations(root):
            for target in TARGETS:
                path = changes_database(root, number, target)
                if path.exists():
                    used |= _photos_named(path)
        return sweep_photos(root, used)


def _photos_named(items: Path) -> set[str]:
    with closing(open_to_read(items)) as connection:
        lines = connection.execute("SELECT path FROM items WHERE path LIKE ?", (f"{PHOTOS}/%",))
        return {path for (path,) in lines}
