"""Operations on published generations: rollback, publication with other entries, and removal.

Rollback makes another generation of the index live. Publishing entries makes a new generation that
shares the files of the live one, and has its changes, with other entries or another calibration in
its manifest. A compaction removes the generations that are no longer needed.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

from aladin_index.changes.database import changes_database, named_photos
from aladin_index.format.disk import (
    changes_lock,
    disk_errors,
    only_builder,
    remove_folder,
    sole_use,
)
from aladin_index.format.layout import (
    CHANGES,
    GENERATIONS,
    ITEMS,
    NEW_GENERATION,
    PHOTOS,
    generation_folder,
    live_generation,
    published_generations,
    set_live_generation,
)
from aladin_index.format.manifest import (
    CollectionEntry,
    MadeBy,
    Manifest,
    check_lengths,
    read_manifest,
    write_manifest,
)
from aladin_index.generations.history import (
    PendingChanges,
    generations_before,
    pending_changes,
    with_changes_of,
)
from aladin_index.generations.writer import publish_generation
from aladin_index.items.uploaded_photos import sweep_photos
from aladin_network.calibration.calibration import Calibration
from aladin_network.calibration.fitted_files import correction_id, is_fitted_with
from aladin_network.errors import IndexMismatchError, InputError, SearchIndexError
from aladin_network.types import TARGETS, Target

# Commands whose generation contains none of the changes of the previous one.
_FROM_NEW_SOURCES = ("build", "import", "merge")


class RollbackReport(NamedTuple):
    """Result of a rollback.

    Attributes:
        left: Generation that was live before; it stays on the disk until a compaction.
        undone: Changes of the previous generation, no longer visible unless it is made live again.
        generation: Generation that is now live.
        pending: Changes of the generation that is now live, visible again.
        counts: Number of items of each collection, including changes.
    """

    left: int
    undone: dict[Target, PendingChanges]
    generation: int
    pending: dict[Target, PendingChanges]
    counts: dict[Target, int]


def rollback_index(root: Path, to: int | None = None) -> RollbackReport:
    """Make another generation live, with the changes that it had when it was replaced.

    Nothing is deleted: to roll back from generation 3 to 2 and then to 3 restores all, until a
    compaction removes 3 (`aladin_index.generations.compact`).

    Args:
        root: Index folder.
        to: Generation on disk, or None for the one that the live one replaced.

    Raises:
        IndexNotReadyError: If nothing was published yet.
        InputError: If there is no such generation, or none before the live one.
        IndexCorruptError: If the target generation is damaged; the live generation stays live.
        IndexWriteError: If the disk cannot be written or the index is being built.
    """
    live_generation(root)  # nothing is written where there is no index
    with disk_errors(root), only_builder(root), changes_lock(root):
        live = live_generation(root)
        published = published_generations(root)
        others = ", ".join(str(number) for number in published if number != live) or "none"
        if to is None:
            to = next(iter(generations_before(root, live)), None)
            if to is None:
                raise InputError(
                    f"{root}: no generation before {live} to roll back to; others: {others}"
                )
        if to not in published or to == live:
            found = "already live" if to == live else "missing"
            raise InputError(f"{root}: generation {to} is {found}; others: {others}")
        folder = generation_folder(root, to)
        manifest = read_manifest(folder)
        check_lengths(folder, manifest.files)
        undone, pending = pending_changes(root, live), pending_changes(root, to)
        set_live_generation(root, to)
        counts: dict[Target, int] = {}
        for target, changes in pending.items():
            entry = manifest.collection(target)
            assert entry is not None
            counts[target] = entry.count + changes.added - changes.removed
        return RollbackReport(live, undone, to, pending, counts)


def publish_entries(
    root: Path,
    manifest: Manifest,
    entries: Mapping[Target, CollectionEntry],
    made_by: MadeBy,
    calibration: Calibration | None = None,
) -> int:
    """Publish a generation with the files and the changes of the previous one.

    To be called by the only builder of the index (`aladin_index.format.disk.only_builder`).
    """
    generation = max(published_generations(root)) + 1
    old = generation_folder(root, manifest.generation)
    folder = root / NEW_GENERATION
    shutil.rmtree(folder, ignore_errors=True)
    for name in manifest.files:
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        _share(old / name, folder / name)
    new = replace(
        manifest,
        generation=generation,
        made_by=made_by,
        replaces=manifest.generation,
        images=entries.get("images", manifest.images),
        texts=entries.get("texts", manifest.texts),
        calibration=calibration or manifest.calibration,
    )
    write_manifest(folder, new)
    publish_generation(root, folder, generation, with_changes_of(root, manifest.generation))
    return generation


def _share(source: Path, copy: Path) -> None:
    """Create a hard link to a file, or a copy if the file system does not support hard links."""
    try:
        os.link(source, copy)
    except OSError:
        shutil.copyfile(source, copy)


def store_calibration(root: Path, calibration: Calibration) -> int:
    """Publish a generation with a calibration that judges its answers.

    Args:
        root: Index folder.
        calibration: Calibration of the model that the index was built with.

    Returns:
        The number of the new generation.

    Raises:
        IndexNotReadyError: If no generation was published yet.
        IndexMismatchError: If the calibration was fitted to the scores of another model, or with
            another hubness correction.
        IndexWriteError: If the disk is full or cannot be written, or a build is running.
    """
    live_generation(root)  # before a lock is made where there is no index
    with disk_errors(root), only_builder(root):
        manifest = read_manifest(generation_folder(root, live_generation(root)))
        if calibration.model_id != manifest.model.id:
            raise IndexMismatchError(f"{root}: model", manifest.model.id, calibration.model_id)
        if not is_fitted_with(calibration, manifest.correction):
            expected, actual = correction_id(manifest.correction), calibration.fitted_on.correction
            raise IndexMismatchError(f"{root}: hubness correction", expected, str(actual))
        return publish_entries(root, manifest, {}, "calibrate", calibration)


class Dropped(NamedTuple):
    """Result of removing the earlier generations of an index.

    Attributes:
        gone: Generations that were removed from the disk.
        in_use: Generations that would have been removed if they were not open.
        lost: Changes that no other generation has, by removed generation and collection; these are
            generations that were rolled back, or replaced by a build, an import or a merge.
    """

    gone: list[int]
    in_use: list[int]
    lost: dict[int, dict[Target, PendingChanges]]


def drop_generations(root: Path, live: int, keep: int) -> Dropped:
    """Remove earlier generations with all their files; called by the only builder.

    Of those that led to the live one, `keep` stay; others were rolled back.
    """
    lineage = [live, *generations_before(root, live)]
    dropped = Dropped([], [], {})
    for number in published_generations(root):
        if number >= live or number in lineage[: keep + 1]:
            continue
        lost = _only_here(root, number, lineage)
        with sole_use(root, number) as alone:
            if alone:
                remove_folder(root, generation_folder(root, number))
                if any(any(changes) for changes in lost.values()):
                    dropped.lost[number] = lost
            (dropped.gone if alone else dropped.in_use).append(number)
    left = set(published_generations(root))
    # A generation is removed before its changes: without them it would have another content.
    for folder in (root / CHANGES).glob("[0-9]*"):
        if int(folder.name) not in left:
            remove_folder(root, folder)
    return dropped


def _only_here(root: Path, number: int, lineage: list[int]) -> dict[Target, PendingChanges]:
    """Count the changes of a generation that the next one of the lineage does not contain."""
    try:
        if number in lineage:
            after = lineage[lineage.index(number) - 1]
            made_by = read_manifest(generation_folder(root, after)).made_by
            if made_by not in _FROM_NEW_SOURCES:
                return {}
        return pending_changes(root, number)
    except SearchIndexError:  # what is damaged goes as well
        return {}


def drop_photos(root: Path) -> int:
    """Remove uploaded photos that no generation refers to; called by the only builder."""
    if not (root / PHOTOS).is_dir():
        return 0
    used: set[str] = set()
    for items in (root / GENERATIONS).glob(f"*/images/{ITEMS}"):
        used |= named_photos(items)
    with changes_lock(root):
        for number in published_generations(root):
            for target in TARGETS:
                path = changes_database(root, number, target)
                if path.exists():
                    used |= named_photos(path)
        return sweep_photos(root, used)
