"""What an index holds, told from its manifest without opening it."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from aladin.calibration.calibration import Calibration
from index.changes.pending import PendingChanges, pending_changes
from index.layout import generation_folder, live_generation, published_generations
from index.manifest import MANIFEST, Manifest, SideEntry, read_manifest
from index.settings import Target
from index.side import ANN, EMBEDDINGS
from index.tokens.store import token_files


class MemoryEstimate(NamedTuple):
    """What searches of one side keep busy of the memory; the system can take all of it back.

    Attributes:
        ann_bytes: the first stage's index.
        embeddings_bytes: read in places, to compare candidates exactly.
        tokens_bytes: read in places, to re-rank.
    """

    ann_bytes: int
    embeddings_bytes: int
    tokens_bytes: int


@dataclass(frozen=True, kw_only=True)
class IndexInfo:
    """Facts about the live generation.

    Attributes:
        path: of the index.
        generation: the live one.
        generations: all that are on the disk, oldest first.
        built_at_s: when it was published, in seconds since 1970.
        schema_version: of its files.
        model_id: sha256 of the weights that made it.
        metric: of the embeddings.
        default_candidates: of a search that does not say.
        sides: images, texts or both.
        calibration: of the hits' probabilities; None: the index is not calibrated.
        fitted_photos_indexed: see `Manifest`.
        pending: of each side, changes that are not in the generation's files.
        memory: of each side.
        total_bytes: of the generation's files and the model's.
    """

    path: Path
    generation: int
    generations: list[int]
    built_at_s: float
    schema_version: int
    model_id: str
    metric: str
    default_candidates: int
    sides: dict[Target, SideEntry]
    calibration: Calibration | None
    fitted_photos_indexed: float | None
    pending: dict[Target, PendingChanges]
    memory: dict[Target, MemoryEstimate]
    total_bytes: int


def describe(path: Path) -> IndexInfo:
    """Describe the live generation of an index.

    Raises:
        IndexNotReadyError: nothing was published yet.
        IndexMismatchError: of another schema version.
        IndexCorruptError: CURRENT, the manifest or the pending changes are damaged.
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
        metric=manifest.metric,
        default_candidates=manifest.default_candidates,
        sides=sides,
        calibration=manifest.calibration,
        fitted_photos_indexed=manifest.fitted_photos_indexed,
        pending=pending_changes(path),
        memory={target: _memory(manifest, target, side) for target, side in sides.items()},
        total_bytes=sum(entry.bytes for entry in files),
    )


def _memory(manifest: Manifest, target: Target, side: SideEntry) -> MemoryEstimate:
    def size(name: str) -> int:
        return manifest.files[f"{target}/{name}"].bytes

    return MemoryEstimate(
        ann_bytes=size(ANN),
        embeddings_bytes=size(EMBEDDINGS),
        tokens_bytes=sum(size(name) for name in token_files(side.token_dtype)),
    )
