"""Writing and publishing of a generation: from encoded items to the live generation.

Readers see the old generation or the new one, and nothing in between. A build, a merge, an import
and a compaction differ only in the source of the encoded items:

    with disk_errors(root), only_builder(root):
        install_model(root, checkpoint_folder, model)
        write_generation(root, NewGeneration(collections={"images": CollectionSource(...)}, ...))
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from pathlib import Path

from aladin_index.ann.first_stage_build import build_first_stages
from aladin_index.encode.read_ahead import StageSeconds
from aladin_index.format.disk import changes_lock
from aladin_index.format.layout import (
    CURRENT,
    GENERATIONS,
    MODEL,
    NEW_GENERATION,
    PUBLISHING,
    SKIPPED,
    generation_folder,
    live_generation,
    published_generations,
    set_live_generation,
)
from aladin_index.format.manifest import (
    BIASES,
    SCHEMA_VERSION,
    CollectionEntry,
    MadeBy,
    Manifest,
    ModelEntry,
    check_same_model,
    copy_model,
    read_manifest,
    write_manifest,
)
from aladin_index.generations.collection_writer import (
    CollectionCounts,
    CollectionSource,
    FittedPhotos,
    collection_files,
    write_collection,
)
from aladin_index.search.options import MAX_ITEMS
from aladin_index.settings import EXACT_ALIGN, BuildSettings
from aladin_index.tokens.bound_files import write_bounds
from aladin_index.tokens.lazy_bounds import query_sample
from aladin_index.tokens.store import TokenStore
from aladin_network.calibration.calibration import Calibration
from aladin_network.checkpoint_files import checkpoint_files
from aladin_network.errors import InputError, brief
from aladin_network.files import (
    FileEntry,
    atomic_file,
    describe_files,
    sync,
    write_json,
)
from aladin_network.scoring.hub_correction import CORRECTION, HubCorrection
from aladin_network.types import NullProgress, Progress, Target

# Entered when the new generation is in place but not yet live, left when it is live.
GoingLive = Callable[[int], AbstractContextManager[None]]


def describe_model(checkpoint_folder: Path, model_id: str) -> ModelEntry:
    return ModelEntry(
        id=model_id, files=describe_files(checkpoint_folder, checkpoint_files(checkpoint_folder))
    )


def install_model(root: Path, checkpoint_folder: Path, model: ModelEntry) -> None:
    """Copy the checkpoint, its graphs included, into an index without a live generation.

    Once there is one the copy stays, and any other model is refused.
    """
    if (root / CURRENT).exists():
        live = read_manifest(generation_folder(root, live_generation(root))).model
        check_same_model(str(root), live, model)
        return
    copy_model(checkpoint_folder, root / MODEL, model)


def publish_generation(
    root: Path, folder: Path, generation: int, going_live: GoingLive | None = None
) -> None:
    """Move a finished generation into place, complete, and make it live.

    To be called by the only builder of the index. Should it be killed between the two, the next
    builder removes the generation, which nobody has seen (`aladin_index.format.disk.only_builder`).
    """
    for path in (*folder.rglob("*"), folder):
        sync(path)
    (root / GENERATIONS).mkdir(exist_ok=True)
    with atomic_file(root / PUBLISHING) as partial:
        partial.write_text(f"{generation}\n", encoding="utf-8")
    folder.rename(generation_folder(root, generation))
    sync(root / GENERATIONS)
    with going_live(generation) if going_live else changes_lock(root):
        set_live_generation(root, generation)
    (root / PUBLISHING).unlink()


@dataclass(frozen=True, kw_only=True)
class NewGeneration:
    """A generation to be written: its items, and what its manifest says of them.

    Attributes:
        collections: Images, texts or both.
        model: Model of the index.
        settings: Settings of the first stage, the filters and the candidates; the form of the
            tokens is that of the codecs.
        fingerprint: Fingerprint of all inputs.
        made_by: Operation that makes the generation.
        calibration: Calibration of the model's scores among such items, or None if there is none.
        correction: Hubness correction of the items, or None.
        going_live: Context manager for what changes together with it, see `publish_generation`.
    """

    collections: Mapping[Target, CollectionSource]
    model: ModelEntry
    settings: BuildSettings
    fingerprint: str
    made_by: MadeBy = "build"
    calibration: Calibration | None = None
    correction: HubCorrection | None = None
    going_live: GoingLive | None = None


def write_generation(
    root: Path,
    new: NewGeneration,
    progress: Progress | None = None,
    seconds: StageSeconds | None = None,
) -> int:
    """Write a new generation of an index, one part in memory at a time, and make it live.

    The same parts and settings make the same files, byte by byte. To be called by the only
    builder of the index (`aladin_index.format.disk.only_builder`) and after `install_model`; what
    a killed process leaves is cleared away by the next builder. Raises `InputError` if a collection
    has no items. `seconds` receives the time of the stages "write" and "ann".
    """
    progress, seconds = progress or NullProgress(), seconds or StageSeconds()
    folder = root / NEW_GENERATION
    fitted_photos = FittedPhotos(None if new.made_by == "compact" else new.calibration)
    shutil.rmtree(folder, ignore_errors=True)
    try:
        with seconds.measure("write"):
            counts = _write_collections(folder, new, fitted_photos, progress)
        progress.note(**seconds.notes())
        with seconds.measure("ann"):
            entries = _describe_collections(folder, new, counts, progress)
        progress.note(**seconds.notes())
        with seconds.measure("write"):
            manifest = Manifest(
                schema_version=SCHEMA_VERSION,
                generation=max(published_generations(root), default=0) + 1,
                metric="inner_product",
                default_candidates=new.settings.default_candidates,
                fingerprint=new.fingerprint,
                made_by=new.made_by,
                replaces=live_generation(root) if (root / CURRENT).exists() else None,
                model=new.model,
                images=entries.get("images"),
                texts=entries.get("texts"),
                calibration=fitted_photos.mark(new.calibration),
                correction=None if new.correction is None else new.correction.constants,
                files=_describe_files(folder, entries),
            )
            write_manifest(folder, manifest)
            publish_generation(root, folder, manifest.generation, new.going_live)
    finally:  # what failed leaves nothing; what did not is elsewhere by now
        shutil.rmtree(folder, ignore_errors=True)
    return manifest.generation


def _write_collections(
    folder: Path, new: NewGeneration, fitted_photos: FittedPhotos, progress: Progress
) -> dict[Target, CollectionCounts]:
    """Write all files of the collections except the ANNs, and the correction they share."""
    counts: dict[Target, CollectionCounts] = {}
    fields = new.settings.filter_fields
    for target, source in fitted_photos.watch(new.collections).items():
        place = folder / target
        place.mkdir(parents=True)
        progress.start(source.count, f"{target} written")
        counts[target] = write_collection(place, target, source, fields, new.correction, progress)
        if counts[target].items == 0:
            first = next(iter(source.skipped), None)
            but = ""
            if first is not None:
                but = f"; {len(source.skipped)} skipped, e.g. {brief(first.id)}: {first.reason}"
            raise InputError(f"{target}: expected at least one item, got none{but}")
        write_json(place / SKIPPED, source.skipped)
    if new.correction is not None:
        new.correction.save(folder / CORRECTION)
    return counts


def _describe_files(
    folder: Path, entries: Mapping[Target, CollectionEntry]
) -> dict[str, FileEntry]:
    names = [name for target, entry in entries.items() for name in collection_files(target, entry)]
    if (folder / CORRECTION).exists():
        names.append(CORRECTION)
    return describe_files(folder, names)


def _describe_collections(
    folder: Path,
    new: NewGeneration,
    counts: Mapping[Target, CollectionCounts],
    progress: Progress,
) -> dict[Target, CollectionEntry]:
    """Build the first stages of the written collections, and describe the collections."""
    settings, biases = new.settings, 0 if new.correction is None else BIASES
    shapes: dict[Target, tuple[int, int]] = {
        target: (counts[target].items, source.embedding_dim + biases)
        for target, source in new.collections.items()
    }
    embedding_dim = next(iter(new.collections.values())).embedding_dim
    anns = build_first_stages(folder, shapes, embedding_dim, settings, progress)
    entries: dict[Target, CollectionEntry] = {
        target: CollectionEntry(
            count=counts[target].items,
            skipped=len(source.skipped),
            embedding_dim=source.embedding_dim,
            token_dim=source.codec.dim,
            token_count=counts[target].tokens,
            token_dtype=source.codec.dtype,
            filter_fields=None if settings.filter_fields is None else list(settings.filter_fields),
            ann=anns[target],
            tuning=source.tuning,
            corrected=new.correction is not None,
        )
        for target, source in new.collections.items()
    }
    return _with_bounds(folder, entries, progress) if settings.ann == EXACT_ALIGN else entries


def _with_bounds(
    folder: Path, entries: Mapping[Target, CollectionEntry], progress: Progress
) -> dict[Target, CollectionEntry]:
    """Write the short tokens of collections whose searches take all items."""
    stores: dict[Target, TokenStore] = {
        target: TokenStore.of(folder / target, entry)
        for target, entry in entries.items()
        if entry.token_count > 0
    }
    bounded = dict(entries)
    for target, store in stores.items():
        if store.count > MAX_ITEMS:
            continue
        queries = [query_sample(other) for each, other in stores.items() if each != target]
        bounds = write_bounds(
            folder / target,
            store,
            queries[0] if queries else None,
            progress,
            are_texts=target == "texts",
        )
        bounded[target] = replace(entries[target], bounds=bounds)
    return bounded
