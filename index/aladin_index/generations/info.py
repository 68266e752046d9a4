"""Contents, item counts and disk usage of an index, read from its manifests without opening it."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

import numpy as np

from aladin_index.format.layout import (
    ANN,
    CHANGES,
    EMBEDDINGS,
    GENERATIONS,
    ITEMS,
    MODEL,
    MODELS,
    PHOTOS,
    UPGRADE,
    generation_folder,
    live_generation,
    published_generations,
)
from aladin_index.format.left_out import LeftOut, read_left_out
from aladin_index.format.manifest import MANIFEST, CollectionEntry, Manifest, read_manifest
from aladin_index.format.models import model_folder
from aladin_index.format.upgrade_plan import UpgradeProgress, upgrade_progress
from aladin_index.generations.history import PendingChanges, pending_changes
from aladin_index.search.live_collection import LiveCollection
from aladin_index.tokens.bound_files import BOUND_FILES
from aladin_index.tokens.store import token_files
from aladin_network.calibration.calibration import Calibration
from aladin_network.heads.trained import read_alignment_trained, read_untrained
from aladin_network.scoring.correction import CorrectionConstants
from aladin_network.types import Target

# All other files are the `rest` of their collection: offsets and skipped items.
_STAGE_OF = {
    ANN: "first stage",
    EMBEDDINGS: "embeddings",
    ITEMS: "items",
    **dict.fromkeys(BOUND_FILES, "bounds"),
}


class MemoryEstimate(NamedTuple):
    """Memory used by searches of one collection; the system can reclaim all of it.

    Attributes:
        ann_bytes: Memory of the first stage's index.
        embeddings_bytes: Memory of the embeddings, which are read at some positions to compare
            candidates exactly.
        tokens_bytes: Memory of the tokens, which are read at some positions to re-rank, and of
            their bounds, if these are stored.
    """

    ann_bytes: int
    embeddings_bytes: int
    tokens_bytes: int


@dataclass(frozen=True, kw_only=True)
class IndexInfo:
    """Facts about the live generation.

    Attributes:
        path: Index folder.
        generation: Number of the live generation.
        generations: All generations on the disk, oldest first.
        built_at_s: Time of publication, in seconds since 1970.
        schema_version: Schema version of its files.
        model_id: SHA-256 of the weights of the model that made the index.
        alignment_trained: Whether the alignment of that model was trained.
        metric: Metric of the embeddings.
        default_candidates: Number of candidates of a search that does not specify one.
        sides: Collections of images, texts or both.
        calibration: Calibration of the hits' probabilities, or None if the index is not calibrated.
        correction: Constants of the hubness correction, or None if scores are not corrected.
        fitted_photos_indexed: See `Manifest`.
        pending: Changes of each collection that are not in the generation's files.
        memory: Memory estimate of each collection.
        total_bytes: Size of the generation's files and the model's, in bytes.
        upgrade: Progress of an unfinished upgrade to another model, or None.
        left_out: What the index lacks of its sources.
        untrained: Why the order of hits is random, or None.
    """

    path: Path
    generation: int
    generations: list[int]
    built_at_s: float
    schema_version: int
    model_id: str
    alignment_trained: bool
    metric: str
    default_candidates: int
    sides: dict[Target, CollectionEntry]
    calibration: Calibration | None
    correction: CorrectionConstants | None
    fitted_photos_indexed: float | None
    pending: dict[Target, PendingChanges]
    memory: dict[Target, MemoryEstimate]
    total_bytes: int
    upgrade: UpgradeProgress | None = None
    left_out: LeftOut = field(default_factory=LeftOut)
    untrained: str | None = None


def describe(path: Path) -> IndexInfo:
    """Describe the live generation of an index.

    Raises:
        IndexNotReadyError: If nothing was published yet.
        IndexMismatchError: If the schema version differs.
        IndexCorruptError: If CURRENT, the manifest or the pending changes are damaged.
    """
    generation = live_generation(path)
    folder = generation_folder(path, generation)
    manifest = read_manifest(folder)
    sides = manifest.sides
    files = (*manifest.files.values(), *manifest.model.files.values())
    return IndexInfo(
        path=path,
        generation=generation,
        generations=published_generations(path),
        built_at_s=(folder / MANIFEST).stat().st_mtime,
        schema_version=manifest.schema_version,
        model_id=manifest.model.id,
        alignment_trained=read_alignment_trained(model_folder(path, manifest.model.id)),
        metric=manifest.metric,
        default_candidates=manifest.default_candidates,
        sides=sides,
        calibration=manifest.calibration,
        correction=manifest.correction,
        fitted_photos_indexed=manifest.fitted_photos_indexed,
        pending=pending_changes(path),
        memory={target: _memory(manifest, target, side) for target, side in sides.items()},
        total_bytes=sum(entry.bytes for entry in files),
        upgrade=upgrade_progress(path, generation),
        left_out=read_left_out(path, manifest),
        untrained=read_untrained(model_folder(path, manifest.model.id)),
    )


def _memory(manifest: Manifest, target: Target, side: CollectionEntry) -> MemoryEstimate:
    def size(name: str) -> int:
        return manifest.files[f"{target}/{name}"].bytes

    tokens = token_files(side.token_dtype)
    if side.bounds is not None:
        tokens += BOUND_FILES
    return MemoryEstimate(
        ann_bytes=size(ANN),
        embeddings_bytes=size(EMBEDDINGS),
        tokens_bytes=sum(map(size, tokens)),
    )


def disk_use(root: Path, manifest: Manifest) -> dict[str, int]:
    """Measure the disk space of an index; files shared by generations count once.

    Args:
        root: Index folder.
        manifest: Manifest of the generation whose parts are listed separately.

    Returns:
        Bytes by part: ``images: tokens`` and so on for each collection, ``model``, ``changes``,
        ``photos``, ``upgrade``, ``other generations``, which is what those do not share with this
        one, and ``other models``. Parts without a byte are missing.
    """
    parts: dict[str, int] = {}
    for name, entry in manifest.files.items():
        _add(parts, _part_of(manifest, name), entry.bytes)
    _add(parts, "model", sum(entry.bytes for entry in manifest.model.files.values()))
    seen = {(file.st_dev, file.st_ino) for file in _files(_folder(root, manifest))}
    for file in _files(root / GENERATIONS):
        if (file.st_dev, file.st_ino) not in seen:
            seen.add((file.st_dev, file.st_ino))
            _add(parts, "other generations", file.st_size)
    for folder in (CHANGES, PHOTOS, UPGRADE):
        _add(parts, folder, sum(file.st_size for file in _files(root / folder)))
    own = model_folder(root, manifest.model.id)
    for folder in (root / MODEL, *(root / MODELS).glob("[0-9a-f]*")):
        if folder != own:
            _add(parts, "other models", sum(file.st_size for file in _files(folder)))
    return {part: size for part, size in parts.items() if size}


def _folder(root: Path, manifest: Manifest) -> Path:
    return generation_folder(root, manifest.generation)


def _part_of(manifest: Manifest, name: str) -> str:
    target, _, file = name.partition("/")
    side = manifest.images if target == "images" else manifest.texts
    if side is not None and file in token_files(side.token_dtype):
        return f"{target}: tokens"
    return f"{target}: {_STAGE_OF.get(file, 'rest')}"


def _add(parts: dict[str, int], part: str, size: int) -> None:
    parts[part] = parts.get(part, 0) + size


def _files(folder: Path) -> Iterator[os.stat_result]:
    """Yield the status of all files below a folder; files removed meanwhile are skipped."""
    for place, _, names in os.walk(folder):
        for name in names:
            try:
                yield Path(place, name).stat()
            except FileNotFoundError:
                continue


class ItemCounts(NamedTuple):
    """Item counts of a collection at one moment: ``built + added - deleted == live``.

    An engine counts those that are there, and tells neither `added` nor `deleted`: both are None.

    Attributes:
        built: Number of items in the files of the generation.
        added: Number of items that were added since and still exist.
        deleted: Number of items in the files of the generation that were deleted or replaced since.
        live: Number of items that a search may find.
    """

    built: int
    added: int | None
    deleted: int | None
    live: int


def count_items(side: LiveCollection) -> ItemCounts:
    """Count the items of one collection, without reading them."""
    built, changes = side.base.entry.count, side.changes
    if changes is None:
        return ItemCounts(built, 0, 0, built)
    deleted = int(np.count_nonzero(changes.removed < built))
    added = len(changes.embeddings) - (len(changes.removed) - deleted)
    return ItemCounts(built, added, deleted, side.count)
