"""Makes an earlier generation live again, as it was when it was replaced."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

from aladin.errors import InputError
from index.changes.lock import changes_lock
from index.changes.pending import PendingChanges, pending_changes
from index.disk import disk_errors, only_builder
from index.layout import (
    generation_folder,
    live_generation,
    published_generations,
    set_live_generation,
)
from index.manifest import check_lengths, read_manifest
from index.settings import Target


class RollbackReport(NamedTuple):
    """What a rollback did.

    Attributes:
        left: the generation that was live before; it stays on the disk until a compaction.
        undone: its changes, which nobody sees any more unless it is made live again.
        generation: that is live now.
        pending: its own changes, which are seen again.
        counts: number of items of each side, changes included.
    """

    left: int
    undone: dict[Target, PendingChanges]
    generation: int
    pending: dict[Target, PendingChanges]
    counts: dict[Target, int]


def rollback_index(root: Path, to: int | None = None) -> RollbackReport:
    """Make another generation live, with the changes that it had when it was replaced.

    Nothing is deleted: to roll back from generation 3 to 2 and then to 3 restores all, until a
    compaction removes 3 (`index.changes.drop_generations`).

    Args:
        root: of the index.
        to: a generation on the disk; None: the nearest one before the live one.

    Raises:
        IndexNotReadyError: nothing was published yet.
        InputError: there is no such generation, or none before.
        IndexCorruptError: the generation to go to is damaged; the live one stays.
        IndexWriteError: the disk cannot be written, or the index is being built.
    """
    live_generation(root)  # nothing is written where there is no index
    with disk_errors(root), only_builder(root), changes_lock(root):
        live = live_generation(root)
        published = published_generations(root)
        others = ", ".join(str(number) for number in published if number != live) or "none"
        if to is None:
            to = max((number for number in published if number < live), default=None)
            if to is None:
                raise InputError(
                    f"{root}: no generation before {live} to go back to; others: {others}"
                )
        if to not in published or to == live:
            found = "the live one" if to == live else "not there"
            raise InputError(f"{root}: generation {to} is {found}; others: {others}")
        folder = generation_folder(root, to)
        manifest = read_manifest(folder)
        check_lengths(folder, manifest.files)
        undone, pending = pending_changes(root, live), pending_changes(root, to)
        set_live_generation(root, to)
        counts: dict[Target, int] = {}
        for target, changes in pending.items():
            entry = manifest.side(target)
            assert entry is not None
            counts[target] = entry.count + changes.added - changes.removed
        return RollbackReport(live, undone, to, pending, counts)
