"""What an index holds, told from its manifest without opening it."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from index.layout import generation_folder, live_generation, published_generations
from index.manifest import MANIFEST, SideEntry, read_manifest
from index.settings import Target


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
    total_bytes: int


def describe(path: Path) -> IndexInfo:
    """Describe the live generation of an index.

    Raises:
        IndexNotReadyError: nothing was published yet.
        IndexMismatchError: of another schema version.
        IndexCorruptError: CURRENT or the manifest is damaged.
    """
    generation = live_generation(path)
    folder = generation_folder(path, generation)
    manifest = read_manifest(folder)
    sides: dict[Target, SideEntry] = {}
    for target in manifest.targets:
        entry = manifest.side(target)
        assert entry is not None
        sides[target] = entry
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
        total_bytes=sum(entry.bytes for entry in files),
    )
