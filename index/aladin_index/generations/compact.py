"""Merges changes into a new generation, while searches and changes continue."""

from __future__ import annotations

import hashlib
import logging
from collections.abc import Generator, Mapping
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from aladin_index.ann.first_stage_build import check_first_stages
from aladin_index.changes.database import (
    changes_database,
    copy_encodings,
    new_database,
)
from aladin_index.changes.opening import open_to_read
from aladin_index.format.disk import changes_lock, disk_errors, only_builder
from aladin_index.format.layout import generation_folder, live_generation
from aladin_index.format.manifest import DIGEST, Manifest, drop_models
from aladin_index.generations.collection_writer import ITEMS_AT_A_TIME, CollectionSource, live_parts
from aladin_index.generations.history import PendingChanges, describe_changes, rolled_back_changes
from aladin_index.generations.published import drop_generations, drop_photos
from aladin_index.generations.reader import SearchIndex, open_index
from aladin_index.generations.writer import NewGeneration, write_generation
from aladin_index.items.tables import insert_items
from aladin_index.search.file_collection import FileCollection
from aladin_index.settings import BuildSettings
from aladin_network.errors import ConfigError, InputError
from aladin_network.types import Progress, Target

logger = logging.getLogger(__name__)


class CompactReport(NamedTuple):
    """Result of a compaction.

    Attributes:
        generation: Generation that is now live; the previous one if there were no changes.
        counts: Number of items of each collection.
        added: Number of items that were merged in, over all collections.
        removed: Number of items that were dropped, over all collections.
        carried: Number of changes that arrived during the compaction and are pending again.
        dropped: Generations that were removed from the disk.
        in_use: Generations that were due for removal but are kept as long as they are being
            searched.
        lost: Changes that no other generation has, by removed generation and collection.
    """

    generation: int
    counts: dict[Target, int]
    added: int
    removed: int
    carried: int
    dropped: list[int]
    in_use: list[int]
    lost: dict[int, dict[Target, PendingChanges]]


def compact_index(root: Path, *, keep: int = 1, progress: Progress | None = None) -> CompactReport:
    """Write a new generation of all live items, and make it live.

    The network does not run. What is added or removed meanwhile is carried over in the last step,
    so nothing that was acknowledged is lost, and nothing waits for longer than that step.

    Args:
        root: Index folder.
        keep: Number of earlier generations to keep for `aladin_index.generations.published`; with
            their changes, they are in the state in which they were replaced.
        progress: Receives the progress in items and vectors.

    Raises:
        IndexNotReadyError: If nothing was published yet.
        InputError: If `keep` is negative, or a collection has no item left or too few for the first
            stage that was asked for.
        IndexCorruptError: If a file does not match the manifest.
        IndexWriteError: If the disk is full or cannot be written, or the index is being built.
    """
    if keep < 0:
        raise InputError(f"keep: expected at least 0, got {keep}")
    live_generation(root)  # nothing is written where there is no index
    with disk_errors(root), only_builder(root):
        with open_index(root, encodes=False) as index:
            collections: dict[Target, _Folding] = {
                target: _Folding(index.collection(target)) for target in index.manifest.targets
            }
            for target, collection in collections.items():
                if collection.live.count == 0:
                    raise InputError(
                        f"{target}: all items were removed, and a generation needs at least one: "
                        "add some first, or rebuild the index without this collection"
                    )
            generation, carried = index.generation, 0
            if any(collection.has_changes for collection in collections.values()):
                _check_first_stages(root, collections, settings_of(index.manifest))
                _warn_of_rolled_back(root)
                going_live = _GoingLive(index, collections)
                new = NewGeneration(
                    collections={target: each.source for target, each in collections.items()},
                    model=index.manifest.model,
                    settings=settings_of(index.manifest),
                    fingerprint=_fingerprint(index, collections),
                    made_by="compact",
                    calibration=index.manifest.calibration,
                    correction=index.correction(),
                    going_live=going_live.carry,
                )
                generation = write_generation(root, new, progress)
                carried = going_live.carried
        dropped = drop_generations(root, generation, keep)
        drop_photos(root)
        drop_models(root)
        return CompactReport(
            generation=generation,
            counts={target: collection.live.count for target, collection in collections.items()},
            added=sum(collection.added for collection in collections.values()),
            removed=sum(collection.removed for collection in collections.values()),
            carried=carried,
            dropped=dropped.gone,
            in_use=dropped.in_use,
            lost=dropped.lost,
        )


def _check_first_stages(
    root: Path, collections: Mapping[Target, _Folding], settings: BuildSettings
) -> None:
    """Check, before any file is written, that enough items are left for the first stage."""
    shapes: dict[Target, tuple[int, int]] = {
        target: (collection.live.count, collection.live.entry.vector_dim)
        for target, collection in collections.items()
    }
    try:
        check_first_stages(shapes, settings)
    except ConfigError as error:
        raise InputError(
            f"{root}: {error}; the changes stay as they are. Add items, or build the index anew "
            "by `aladin index build --ann auto`"
        ) from error


def _warn_of_rolled_back(root: Path) -> None:
    """Log in advance which changes will be removed together with their generations."""
    for number, changes in rolled_back_changes(root).items():
        if any(any(each) for each in changes.values()):
            logger.warning(
                "generation %d was rolled back; it is removed at the end of this compaction, and "
                "with it its changes: %s",
                number,
                describe_changes(changes),
            )


class _Folding:
    """One collection during its compaction.

    Attributes:
        live: Collection as it was when the compaction began.
        new_rows: (rows,) int64, where each row goes; -1 for those that are left out.
    """

    def __init__(self, live: FileCollection) -> None:
        self.live = live
        self.rows = live.entry.count if live.changes is None else live.changes.rows
        selection = live.selection
        kept = np.ones(self.rows, dtype=np.bool_) if selection is None else selection.mask
        self.new_rows: NDArray[np.int64] = np.where(kept, np.cumsum(kept) - 1, -1)

    @property
    def has_changes(self) -> bool:
        """Whether there are changes to merge, including items added and removed again."""
        return self.live.changes is not None and not self.live.changes.is_empty

    @property
    def added(self) -> int:
        """Number of added items that are merged."""
        return int(np.count_nonzero(self.new_rows[self.live.entry.count :] >= 0))

    @property
    def removed(self) -> int:
        """Number of items of the old generation that are dropped."""
        return int(np.count_nonzero(self.new_rows[: self.live.entry.count] < 0))

    @property
    def source(self) -> CollectionSource:
        """Source of the new generation's collection."""
        entry, codec = self.live.entry, self.live.base.tokens.codec
        return CollectionSource(
            embedding_dim=entry.embedding_dim,
            codec=codec,
            parts=live_parts(self.live),
            tuning=entry.tuning,
        )


@dataclass
class _GoingLive:
    """Transfers the changes made since the compaction began.

    Attributes:
        index: The old generation.
        collections: Collections as they were compacted.
        carried: Number of changes carried over.
    """

    index: SearchIndex
    collections: Mapping[Target, _Folding]
    carried: int = 0

    @contextmanager
    def carry(self, generation: int) -> Generator[None]:
        """Lock the index against changes until the new generation is live."""
        with changes_lock(self.index.path):
            for target, collection in self.collections.items():
                self.carried += self._carry_collection(generation, target, collection)
            yield

    def _carry_collection(self, generation: int, target: Target, collection: _Folding) -> int:
        later = self.index.collection(target).changes
        if later is None:
            return 0
        known = 0 if collection.live.changes is None else len(collection.live.changes.removed)
        removed = later.removed[known:]
        # Rows of later items follow those of the new generation, in the order of their addition.
        shift = collection.live.count - collection.rows
        inside = removed < collection.rows
        moved = removed + shift
        moved[inside] = collection.new_rows[removed[inside]]
        count = later.rows - collection.rows + len(removed)
        if count == 0:
            return 0
        root, old = self.index.path, self.index.generation
        path = changes_database(root, generation, target)
        with (
            closing(open_to_read(changes_database(root, old, target))) as source,
            new_database(path, collection.live.entry.filter_fields) as connection,
        ):
            for start in range(collection.rows, later.rows, ITEMS_AT_A_TIME):
                rows = range(start, min(start + ITEMS_AT_A_TIME, later.rows))
                items = sorted(later.by_rows(rows))
                insert_items(connection, (item._replace(row=item.row + shift) for item in items))
                copy_encodings(source, connection, rows, shift)
            connection.executemany(
                "INSERT INTO removed (row) VALUES (?)", ((row,) for row in moved.tolist())
            )
        return count


def settings_of(manifest: Manifest) -> BuildSettings:
    """Return the build settings of a generation, for another one that takes its place."""
    entries = [entry for entry in (manifest.images, manifest.texts) if entry is not None]
    fields = entries[0].filter_fields
    return BuildSettings(
        # The choice of "auto" for fewer items may differ now.
        ann=entries[0].ann.asked,
        memory_budget_bytes=entries[0].ann.memory_budget_bytes,
        ann_recall=max(entry.ann.recall_wanted for entry in entries),
        token_dtype=entries[0].token_dtype,
        filter_fields=None if fields is None else tuple(fields),
        default_candidates=manifest.default_candidates,
    )


def _fingerprint(index: SearchIndex, collections: Mapping[Target, _Folding]) -> str:
    """Hash all inputs of the new generation."""
    folder = generation_folder(index.path, index.generation)
    digest = hashlib.sha256(f"compact {index.manifest.fingerprint}\n".encode())
    digest.update((folder / DIGEST).read_bytes())
    for target, collection in collections.items():
        digest.update(f"{target} {collection.rows} ".encode() + collection.new_rows.tobytes())
        if collection.live.changes is not None:
            digest.update(np.ascontiguousarray(collection.live.changes.embeddings).tobytes())
    return digest.hexdigest()
