"""Makes the description of an index: from an open generation, or from its files without opening it.

`LocalFacts` is `IndexFacts` with what is known where the index is stored.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from aladin_index.facts import CollectionFacts, IndexFacts, IndexModel, present
from aladin_index.format.layout import (
    ANN,
    EMBEDDINGS,
    EngineLocation,
    generation_folder,
    live_generation,
    published_generations,
)
from aladin_index.format.manifest import (
    MANIFEST,
    CollectionEntry,
    Manifest,
    model_folder,
    read_manifest,
)
from aladin_index.format.skipped import FOLLOWED, read_skipped_summary
from aladin_index.generations.history import PendingChanges, changed_at_s, pending_changes
from aladin_index.search.options import MAX_ITEMS
from aladin_index.tokens.bound_files import BOUND_FILES
from aladin_index.tokens.store import token_files
from aladin_network.heads.trained import (
    read_alignment_trained,
    read_pretrained_name,
    read_untrained,
)
from aladin_network.scoring.hub_correction import CorrectionConstants
from aladin_network.types import Target

if TYPE_CHECKING:
    from aladin_index.search.collection import SearchBackend


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
class LocalCollection(CollectionEntry, CollectionFacts):
    """A collection where it is stored.

    Attributes:
        built: Number of items when it was built or pushed.
        pending: Changes that are not in the generation's files, or None if they were not counted.
        memory: Memory of its searches, or None if it was not asked for.
    """

    built: int
    pending: PendingChanges | None = None
    memory: MemoryEstimate | None = None


@dataclass(frozen=True, kw_only=True)
class LocalFacts(IndexFacts):
    """The live generation where it is stored.

    Attributes:
        path: Index folder.
        engine: Location in the vector database, or None for an index of files.
        generations: All generations, oldest first; in an engine including unfinished ones.
        built_at: Time of publication, or None in an engine.
        changed: Whether items were added or removed since it was built or pushed.
        schema_version: Schema version of the manifest.
        metric: Metric of the embeddings.
        correction: Constants of the hubness correction, or None if scores are not corrected.
        size_bytes: Size of the generation's files by collection, and of those of the "model".
    """

    images: LocalCollection | None
    texts: LocalCollection | None
    path: Path
    engine: EngineLocation | None = None
    generations: list[int] = field(default_factory=list[int])
    built_at: datetime | None = None
    changed: bool | None = None
    schema_version: int
    metric: str
    correction: CorrectionConstants | None
    size_bytes: dict[str, int]

    @property
    def collections(self) -> dict[Target, LocalCollection]:
        return present(self.images, self.texts)

    def warnings(self) -> list[str]:
        """List what is less than was asked for: recalls of first stages, and probabilities."""
        found = [
            f"{target}: {each.ann.factory} finds {each.ann.recall:.4f} of the nearest "
            f"{each.ann.recall_at}, {each.ann.recall_wanted} was wanted; allow it more memory, or "
            "choose another --ann"
            for target, each in self.collections.items()
            if each.ann.recall < each.ann.recall_wanted
        ]
        if self.calibration is not None and self.calibration.other_photos:
            found.append(
                f"the probabilities are not used: they were fitted on "
                f"{self.calibration.fitted_on.data}, to which most photos of this index do not "
                "belong; to fit them to this index: aladin calibrate CHECKPOINT DATA --index "
                f"{self.path}"
            )
        return found


def describe(path: Path) -> LocalFacts:
    """Describe the live generation of an index of files without opening it; counts its changes.

    Raises:
        IndexNotReadyError: If nothing was published yet.
        IndexMismatchError: If the schema version differs.
        IndexCorruptError: If CURRENT, the manifest or the pending changes are damaged.
    """
    generation = live_generation(path)
    folder = generation_folder(path, generation)
    manifest = read_manifest(folder)
    pending = pending_changes(path, generation)
    facts = describe_manifest(
        path,
        manifest,
        {
            target: entry.count + pending[target].added - pending[target].removed
            for target, entry in manifest.collections.items()
        },
    )
    collections = {
        target: replace(each, pending=pending[target], memory=_memory(manifest, target, each))
        for target, each in facts.collections.items()
    }
    return replace(
        facts,
        **collections,
        generations=published_generations(path),
        built_at=_time((folder / MANIFEST).stat().st_mtime),
        changed=any(map(any, pending.values())),
    )


def facts_of(index: SearchBackend) -> LocalFacts:
    """Describe an open generation, with what was added and deleted since it was built."""
    manifest = index.manifest
    counts: dict[Target, int] = {
        target: index.collection(target).count for target in manifest.targets
    }
    return describe_manifest(index.path, manifest, counts, in_engine=index.place is None)


def describe_manifest(
    path: Path, manifest: Manifest, counts: Mapping[Target, int], *, in_engine: bool = False
) -> LocalFacts:
    """Describe a generation.

    In an engine there are no files to look at; the counts are those of its items now.
    """
    model = model_folder(path, manifest.model.id)
    changed_s = None if in_engine else changed_at_s(path, manifest)
    collections = {
        target: LocalCollection(
            **_fields(entry, count=counts[target]),
            built=entry.count,
            takes_all=not in_engine and entry.token_count > 0 and counts[target] <= MAX_ITEMS,
        )
        for target, entry in manifest.collections.items()
    }
    sizes = Counter({"model": sum(file.bytes for file in manifest.model.files.values())})
    for name, file in manifest.files.items():
        sizes[name.partition("/")[0]] += file.bytes
    return LocalFacts(
        generation=manifest.generation,
        default_candidates=manifest.default_candidates,
        model=IndexModel(id=manifest.model.id, name=read_pretrained_name(model)),
        images=collections.get("images"),
        texts=collections.get("texts"),
        alignment_trained=read_alignment_trained(model),
        untrained=read_untrained(model),
        changed_at=None if changed_s is None else _time(changed_s),
        skipped=None if in_engine else read_skipped_summary(path, manifest),
        calibration=manifest.calibration,
        follows_folders=(path / FOLLOWED).exists(),
        path=path,
        schema_version=manifest.schema_version,
        metric=manifest.metric,
        correction=manifest.correction,
        size_bytes=dict(sizes),
    )


def _fields(entry: CollectionEntry, count: int) -> dict[str, Any]:
    return {**vars(entry), "count": count}


def _time(seconds: float) -> datetime:
    return datetime.fromtimestamp(seconds, UTC)


def _memory(manifest: Manifest, target: Target, entry: CollectionEntry) -> MemoryEstimate:
    def size(name: str) -> int:
        return manifest.files[f"{target}/{name}"].bytes

    tokens = token_files(entry.token_dtype)
    if entry.bounds is not None:
        tokens += BOUND_FILES
    return MemoryEstimate(
        ann_bytes=size(ANN),
        embeddings_bytes=size(EMBEDDINGS),
        tokens_bytes=sum(map(size, tokens)),
    )
