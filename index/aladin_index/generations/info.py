"""Contents and memory of an index, read from its manifests without opening it."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

from aladin_index.format.layout import (
    ANN,
    EMBEDDINGS,
    generation_folder,
    live_generation,
    published_generations,
)
from aladin_index.format.manifest import MANIFEST, CollectionEntry, Manifest, read_manifest
from aladin_index.format.models import model_folder
from aladin_index.format.skipped import SkippedSummary, read_skipped_summary
from aladin_index.generations.history import PendingChanges, pending_changes
from aladin_index.tokens.bound_files import BOUND_FILES
from aladin_index.tokens.store import token_files
from aladin_network.calibration.calibration import Calibration
from aladin_network.heads.trained import read_alignment_trained, read_untrained
from aladin_network.scoring.hub_correction import CorrectionConstants
from aladin_network.types import Target


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
        collections: Collections of images, texts or both.
        calibration: Calibration of the hits' probabilities, or None if the index is not calibrated.
        correction: Constants of the hubness correction, or None if scores are not corrected.
        pending: Changes of each collection that are not in the generation's files.
        memory: Memory estimate of each collection.
        total_bytes: Size of the generation's files and the model's, in bytes.
        skipped: What the index lacks of its sources.
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
    collections: dict[Target, CollectionEntry]
    calibration: Calibration | None
    correction: CorrectionConstants | None
    pending: dict[Target, PendingChanges]
    memory: dict[Target, MemoryEstimate]
    total_bytes: int
    skipped: SkippedSummary = field(default_factory=SkippedSummary)
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
    collections = manifest.collections
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
        collections=collections,
        calibration=manifest.calibration,
        correction=manifest.correction,
        pending=pending_changes(path),
        memory={
            target: _memory(manifest, target, collection)
            for target, collection in collections.items()
        },
        total_bytes=sum(entry.bytes for entry in files),
        skipped=read_skipped_summary(path, manifest),
        untrained=read_untrained(model_folder(path, manifest.model.id)),
    )


def _memory(manifest: Manifest, target: Target, collection: CollectionEntry) -> MemoryEstimate:
    def size(name: str) -> int:
        return manifest.files[f"{target}/{name}"].bytes

    tokens = token_files(collection.token_dtype)
    if collection.bounds is not None:
        tokens += BOUND_FILES
    return MemoryEstimate(
        ann_bytes=size(ANN),
        embeddings_bytes=size(EMBEDDINGS),
        tokens_bytes=sum(map(size, tokens)),
    )
