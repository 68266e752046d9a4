"""Merging of indexes that were built on different machines with the same model.

Duplicate ids are found on disk, because all ids together may not fit into memory.
"""

from __future__ import annotations

import hashlib
import shutil
import sqlite3
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, closing
from dataclasses import dataclass, replace
from itertools import islice
from pathlib import Path
from typing import NamedTuple

import numpy as np

from aladin_index.ann.first_stage_build import check_first_stages
from aladin_index.ann.hub_correction import without_biases
from aladin_index.encode.encoded import PackedBatch
from aladin_index.format.disk import check_folder, disk_errors, only_builder
from aladin_index.format.layout import NEW_CATALOGUE, generation_folder
from aladin_index.format.manifest import DIGEST, model_folder
from aladin_index.format.skipped import read_skipped
from aladin_index.generations.collection_writer import CollectionSource, live_parts
from aladin_index.generations.reader import SearchIndex, open_index
from aladin_index.generations.writer import NewGeneration, install_model, write_generation
from aladin_index.items.uploaded_photos import UploadedPhoto
from aladin_index.search.file_collection import FileCollection
from aladin_index.settings import BuildSettings
from aladin_index.tokens.codec import TokenCodec
from aladin_network.calibration.calibration import Calibration
from aladin_network.errors import IndexMismatchError, InputError, brief
from aladin_network.scoring.hub_correction import CORRECTION, HubCorrection
from aladin_network.types import TARGETS, NullProgress, Progress, Target

_IDS_AT_A_TIME = 1000


def check_ids_differ(
    root: Path, target: Target, ids: Mapping[Path, Iterator[str]], progress: Progress
) -> None:
    """Reject an id that two indexes share; called by the only builder of `root`."""
    folder = root / NEW_CATALOGUE
    folder.mkdir()
    try:
        with closing(sqlite3.connect(folder / "ids.sqlite")) as connection:
            connection.execute("PRAGMA journal_mode = OFF")
            connection.execute("PRAGMA synchronous = OFF")
            connection.execute("CREATE TABLE ids (id TEXT PRIMARY KEY, part INTEGER) WITHOUT ROWID")
            paths = list(ids)
            for part, of_part in enumerate(ids.values()):
                while batch := list(islice(of_part, _IDS_AT_A_TIME)):
                    lines = [(item_id, part) for item_id in batch]
                    try:
                        connection.executemany("INSERT INTO ids VALUES (?, ?)", lines)
                    except sqlite3.IntegrityError:
                        item_id, first = _repetition(connection, batch, part)
                        raise InputError(
                            f"{target}: id {brief(item_id)} is in {paths[first]} and in "
                            f"{paths[part]}"
                        ) from None
                    progress.advance(len(batch))
    finally:
        shutil.rmtree(folder)


def _repetition(connection: sqlite3.Connection, ids: Sequence[str], part: int) -> tuple[str, int]:
    """Find the repeated id in a rejected batch and its part; insert the ids before it."""
    for item_id in ids:
        found = connection.execute("SELECT part FROM ids WHERE id = ?", (item_id,)).fetchone()
        if found is not None and found[0] != part:
            return item_id, found[0]
    raise AssertionError("the database rejected ids without a repetition")


class MergeReport(NamedTuple):
    """Result of a merge.

    Attributes:
        generation: The new live generation.
        counts: Number of items of each collection.
    """

    generation: int
    counts: dict[Target, int]


@dataclass(frozen=True)
class _Part:
    """One collection of one of the indexes, in its state at the start of the merge."""

    index: SearchIndex
    collection: FileCollection

    @property
    def folder(self) -> Path:
        return generation_folder(self.index.path, self.index.generation) / self.collection.target


def merge_indexes(
    parts: Sequence[Path],
    out: Path,
    settings: BuildSettings | None = None,
    progress: Progress | None = None,
) -> MergeReport:
    """Write a generation of all items of some indexes, in their order, and make it live.

    Nothing is encoded again, and tokens keep their stored form to the last bit. What was added to
    a part or removed from it counts. The parts stay as they are; a merge that was cut short
    leaves nothing, and is begun again. A calibration that all parts have in common stays, and so
    does a hubness correction; if they differ, the merged index has none, since each is valid only
    for its own part.

    Args:
        parts: Folders of indexes that were built with the same model and the same token format.
        out: Folder of the index to write to: a new one, or one of the same model.
        settings: Settings of the first stage; fields for filters and candidates are those of the
            first part, unless fields are given here.
        progress: Receives the progress in items and vectors.

    Raises:
        InputError: If there is no part, one is given twice or is `out`, or two of them share an id.
        IndexMismatchError: If the parts, or `out`, have different models or token formats.
        SearchIndexError: If a part cannot be read.
        ConfigError: If FAISS cannot build what the settings ask for, or `out` holds something other
            than an index.
        IndexWriteError: If the disk is full or cannot be written, or `out` is being built.
    """
    progress = progress or NullProgress()
    if not parts:
        raise InputError("expected at least one index to merge, got none")
    places = [part.resolve() for part in parts]
    if len(set(places)) < len(places):
        twice = next(
            part for part, place in zip(parts, places, strict=True) if places.count(place) > 1
        )
        raise InputError(f"{twice}: given twice; an index can be merged only once")
    if out.resolve() in places:
        raise InputError(f"{out}: one of the indexes to merge; choose another output folder")
    check_folder(out)
    with ExitStack() as opened:
        indexes = [opened.enter_context(open_index(part, encodes=False)) for part in parts]
        model = indexes[0].manifest.model
        for index in indexes[1:]:
            if index.manifest.model != model:
                found = index.manifest.model.id
                raise IndexMismatchError(f"{index.path}: model of {parts[0]}", model.id, found)
        collections = _collections(indexes)
        counts: dict[Target, int] = {
            target: sum(part.collection.count for part in of_target)
            for target, of_target in collections.items()
        }
        settings = _with_settings_of(indexes[0], settings or BuildSettings())
        correction = _common_correction(indexes)
        with disk_errors(out), only_builder(out):
            check_first_stages(
                {
                    target: (counts[target], of_target[0].collection.entry.embedding_dim)
                    for target, of_target in collections.items()
                },
                settings,
            )
            _check_ids(out, collections, progress)
            install_model(out, model_folder(parts[0], model.id), model)
            new = NewGeneration(
                collections=_sources(out, collections, keeps_biases=correction is not None),
                model=model,
                settings=settings,
                fingerprint=_fingerprint(collections),
                made_by="merge",
                calibration=_common_calibration(indexes),
                correction=correction,
            )
            generation = write_generation(out, new, progress)
    return MergeReport(generation=generation, counts=counts)


def _collections(indexes: Sequence[SearchIndex]) -> dict[Target, list[_Part]]:
    collections: dict[Target, list[_Part]] = {}
    for target in TARGETS:
        parts = [
            _Part(index, index.collection(target))
            for index in indexes
            if target in index.manifest.targets
        ]
        for part in parts[1:]:
            expected, found = (
                parts[0].collection.entry.token_dtype,
                part.collection.entry.token_dtype,
            )
            if found != expected:
                raise IndexMismatchError(
                    f"{part.index.path}: {target}: tokens in the format of {parts[0].index.path}",
                    expected,
                    found,
                )
        filled = [part for part in parts if part.collection.count]
        if filled:
            collections[target] = filled
    return collections


def _with_settings_of(index: SearchIndex, settings: BuildSettings) -> BuildSettings:
    manifest = index.manifest
    entry = manifest.collection(manifest.targets[0])
    fields = settings.filter_fields
    if fields is None and entry is not None and entry.filter_fields is not None:
        fields = tuple(entry.filter_fields)
    return replace(settings, filter_fields=fields, default_candidates=manifest.default_candidates)


def _check_ids(
    out: Path, collections: Mapping[Target, Sequence[_Part]], progress: Progress
) -> None:
    """Reject an id that two parts share, in each collection."""
    for target, parts in collections.items():
        progress.start(sum(part.collection.count for part in parts), f"ids of {target}")
        ids = {
            part.index.path: (item_id for item_id, _ in part.collection.items.ids())
            for part in parts
        }
        check_ids_differ(out, target, ids, progress)


def _sources(
    out: Path, collections: Mapping[Target, Sequence[_Part]], *, keeps_biases: bool
) -> dict[Target, CollectionSource]:
    return {
        target: _source(out, parts, keeps_biases=keeps_biases)
        for target, parts in collections.items()
    }


def _common_correction(indexes: Sequence[SearchIndex]) -> HubCorrection | None:
    """Return the hubness correction that all parts have, or None: items need the same bank."""
    first, *others = [index.manifest.files.get(CORRECTION) for index in indexes]
    return indexes[0].correction() if all(other == first for other in others) else None


def _common_calibration(indexes: Sequence[SearchIndex]) -> Calibration | None:
    # `other_photos` is ignored here; it is computed again for the merged index. Probabilities are
    # those of scores with a correction, or without.
    if len({index.manifest.correction for index in indexes}) > 1:
        return None
    first, *others = [
        None
        if (found := index.manifest.calibration) is None
        else replace(found, other_photos=False)
        for index in indexes
    ]
    return first if all(other == first for other in others) else None


def _source(out: Path, parts: Sequence[_Part], *, keeps_biases: bool) -> CollectionSource:
    """Describe one collection of the merged index."""
    codec, first_ids = TokenCodec.concatenated(
        [part.collection.base.tokens.codec for part in parts]
    )
    return CollectionSource(
        embedding_dim=parts[0].collection.entry.embedding_dim,
        codec=codec,
        parts=_encoded(out, parts, first_ids, keeps_biases=keeps_biases),
        skipped=[entry for part in parts for entry in read_skipped(part.folder)],
        count=sum(part.collection.count for part in parts),
    )


def _encoded(
    out: Path, parts: Sequence[_Part], first_ids: Sequence[int], *, keeps_biases: bool
) -> Iterator[PackedBatch]:
    """Yield all items, with centroids renumbered for the merged codebook."""
    for part, first_id in zip(parts, first_ids, strict=True):
        dim = part.collection.entry.embedding_dim
        for encoded in live_parts(part.collection):
            if not keeps_biases:
                bare = without_biases(encoded.embeddings, dim)
                encoded = replace(encoded, embeddings=bare)
            for item in encoded.items:
                # An uploaded photo is stored in the index itself.
                if item.path is not None and not Path(item.path).is_absolute():
                    UploadedPhoto((part.index.path / item.path).read_bytes()).write(out)
            ids = encoded.tokens.centroid_ids
            if ids is None or first_id == 0:
                yield encoded
            else:
                moved = encoded.tokens._replace(centroid_ids=ids + np.uint16(first_id))
                yield replace(encoded, tokens=moved)


def _fingerprint(collections: dict[Target, list[_Part]]) -> str:
    """Hash all inputs of the merged generation."""
    digest = hashlib.sha256(b"merge\n")
    for target, parts in collections.items():
        for part in parts:
            manifest = generation_folder(part.index.path, part.index.generation) / DIGEST
            digest.update(f"{target} ".encode() + manifest.read_bytes())
            changes = part.collection.changes
            if changes is not None:
                digest.update(np.ascontiguousarray(changes.embeddings).tobytes())
                digest.update(changes.removed.tobytes())
    return digest.hexdigest()
