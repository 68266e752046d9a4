"""Publishes an index of files to Milvus, as a new generation.

While the items are sent, the exact nearest items of sample queries are collected, so that the
search width in Milvus can be chosen that finds enough of them. The folder that stands for the index
in Milvus has its model, the uploaded photos, and the location of the index.
"""

from __future__ import annotations

import hashlib
import json
import shutil
from collections.abc import Generator, Iterable, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from aladin_index.ann.search_width import ChosenSearchWidth, choose, is_saturated, sample_queries
from aladin_index.engines.connection import ENGINE
from aladin_index.engines.milvus import EngineClient, EngineQuery, read_generation
from aladin_index.engines.record import CHANGED, SOURCE, GenerationRecord, is_whole
from aladin_index.engines.rows import CollectionSchema, EngineItem
from aladin_index.format.disk import lock_file
from aladin_index.format.layout import CURRENT, MODEL, EngineLocation, location_of, write_location
from aladin_index.format.manifest import (
    AnnEntry,
    CollectionEntry,
    Manifest,
    RecallPoint,
    copy_model,
    has_model,
    model_folder,
    upgrade_model_folder,
)
from aladin_index.generations.collection_writer import PackedBatch, live_parts
from aladin_index.generations.history import earlier_generations
from aladin_index.generations.reader import SearchIndex, open_index
from aladin_index.items.tables import StoredItem
from aladin_index.search.file_collection import FileCollection
from aladin_index.tokens.codec import TokenCodec
from aladin_index.tokens.store import feedback_from
from aladin_network.config import dump_config
from aladin_network.errors import ConfigError, EngineError, IndexWriteError, InputError
from aladin_network.files import atomic_file, lock_to_write, make_folder
from aladin_network.types import TARGETS, NullProgress, Progress, Target

# The entry of an unfinished record with the number of images and texts inserted so far.
_PROGRESS = "progress.json"
# Number of batches that an interrupted push repeats at most.
_BATCHES_A_NOTE = 8
# Number of queries for which the results are compared with the exact nearest items.
_RECALL_QUERIES = 100
# Milvus sums cosines in another order, and sometimes with half the width of the registers.
_ROUNDING = 1e-6
_UNITS: dict[Target, str] = {"images": "photos", "texts": "texts"}


@dataclass(frozen=True, kw_only=True)
class PushSettings:
    """Options of a push.

    Attributes:
        batch_size: Number of items that are passed to the client at a time.
        keep: Number of generations to keep in Milvus, including the new one.
        ann_recall: Share of the exact nearest items that the first stage of Milvus has to find, in
            (0, 1]; the search width is chosen accordingly. None for the value that the index was
            built for.
        discard_changes: Whether to continue if items were added to or removed from the live
            generation in Milvus; the new generation does not contain these changes.
        unless_live: Do nothing if the live generation in Milvus was pushed from the index in its
            present state, into the same folder and with the same options.
    """

    batch_size: int = 256
    keep: int = 2
    ann_recall: float | None = None
    discard_changes: bool = False
    unless_live: bool = False

    def __post_init__(self) -> None:
        if self.ann_recall is not None and not 0 < self.ann_recall <= 1:
            raise ConfigError(
                f"ann_recall: expected more than 0 and at most 1, got {self.ann_recall}"
            )
        for name, value in (("batch_size", self.batch_size), ("keep", self.keep)):
            if value < 1:
                raise ConfigError(f"{name}: expected at least 1, got {value}")


class PushReport(NamedTuple):
    """Result of a push.

    Attributes:
        generation: Generation that is now live in Milvus.
        counts: Number of items of each collection.
        resumed: Number of these items that an interrupted push had already inserted.
        first_stages: Search width of each collection, and its recall.
        dropped: Generations that were removed.
    """

    generation: int
    counts: dict[Target, int]
    resumed: dict[Target, int]
    first_stages: dict[Target, AnnEntry]
    dropped: list[int]


def push_index(
    index: Path,
    folder: Path,
    location: EngineLocation,
    client: EngineClient,
    settings: PushSettings,
    progress: Progress | None = None,
) -> PushReport:
    """Copy all live items of an index to Milvus, as its new live generation.

    The previous generation stays live until the new one is complete, counted and searchable. An
    interrupted push continues when it is repeated with the same index and options; otherwise it
    starts anew. Run one push at a time per name: when it ends, it removes unfinished ones.

    Args:
        index: Folder of an index in files; not changed.
        folder: Folder that will represent the index in Milvus; created or updated.
        location: Location of the index in Milvus.
        client: Client of Milvus; not closed.
        settings: Options of the push.
        progress: Receives the progress in items.

    Raises:
        ConfigError: If there is an index of files at `folder`.
        InputError: If `index` is not an index in files, or has a hubness correction, or changes
            would be lost, including changes made during the push.
        EngineError: If Milvus rejects a call, or does not hold as many items as were sent to it.
        SearchIndexError: If the index cannot be read or the disk cannot be written.
    """
    with open_index(index, encodes=False) as opened, only_pusher(folder):
        if opened.manifest.correction is not None:
            raise InputError(
                f"{index}: expected an index without a hubness correction, whose biases no vector "
                "database stores; build one with a checkpoint that has none"
            )
        push = _Push(client, opened, folder, location, settings)
        live = client.live_generation()
        if live is not None and settings.unless_live and location_of(folder) == location:
            pieces = client.read_record(live) or {}
            if pieces.get(SOURCE) == push.identity:
                manifest = read_generation(client, live).manifest
                return _report(manifest, dict.fromkeys(push.collections, 0), dropped=[])
        _check_unchanged(client, live, settings)
        push.begin(live)
        manifest = push.send_all(live, progress or NullProgress())
        _write_folder(index, folder, manifest, location)
        # Repeated, because a push takes long: services may have received changes meanwhile.
        _check_unchanged(client, live, settings)
        client.make_live(push.generation)
        return _report(manifest, push.resumed, _drop_old(client, push.generation, settings.keep))


def rollback_engine(client: EngineClient, to: int | None = None) -> int:
    """Make an earlier generation live again, with its changes, and return its number.

    Args:
        client: Client of Milvus.
        to: Complete generation to make live, or None for the one that the live one replaced.

    Raises:
        InputError: If there is no such generation.
    """
    live = client.live_generation()
    whole = [each for each in client.generations() if is_whole(client.read_record(each))]
    earlier = [] if live is None else _earlier(client, live, whole)
    if to is None and not earlier:
        raise InputError(f"{ENGINE}: no generation before {live} is left to go back to")
    chosen = earlier[0] if to is None else to
    if chosen not in whole or chosen == live:
        others = ", ".join(str(each) for each in whole if each != live) or "none"
        raise InputError(f"{ENGINE}: expected another complete one ({others}), got {to}")
    client.make_live(chosen)
    return chosen


class _Push:
    """A push in progress; changes of the index after its start are not seen.

    Attributes:
        collections: Collections of the index: images, texts or both.
        generation: Generation that is being filled.
        identity: What is pushed, by which an interrupted push is continued.
        resumed: Number of items of each collection that an interrupted push had inserted.
    """

    def __init__(
        self,
        client: EngineClient,
        index: SearchIndex,
        folder: Path,
        location: EngineLocation,
        settings: PushSettings,
    ) -> None:
        self._client, self._index, self._folder = client, index, folder
        self._location, self._settings = location, settings
        self._done: dict[str, int] = {}
        self.collections: dict[Target, FileCollection] = {
            target: index.collection(target) for target in index.manifest.targets
        }
        self.generation = 1
        self.identity = self._identity()
        self.resumed: dict[Target, int] = {}

    def begin(self, live: int | None) -> None:
        """Continue the newest generation if this push started it, or start a new one."""
        generations = self._client.generations()
        if generations:
            newest = generations[-1]
            pieces = self._client.read_record(newest) or {}
            # One with changes was complete, and live until a rollback.
            is_started = newest != live and CHANGED not in pieces
            if is_started and pieces.get(SOURCE) == self.identity:
                self.generation = newest
                self._done = json.loads(pieces.get(_PROGRESS, b"{}"))
                return
            self.generation = newest + 1
        self._note()

    def send_all(self, live: int | None, progress: Progress) -> Manifest:
        """Insert all items and the record; return the manifest of the complete generation."""
        entries: dict[Target, CollectionEntry] = {}
        for target in self.collections:
            entries[target] = self._send(target, progress)
        manifest = replace(
            self._index.manifest,
            generation=self.generation,
            replaces=live,
            images=entries.get("images"),
            texts=entries.get("texts"),
            files={},
        )
        codecs: dict[Target, TokenCodec] = {target: self._codec(target) for target in entries}
        record = GenerationRecord(manifest=manifest, codecs=codecs, source=self.identity)
        self._client.write_record(self.generation, record.pieces())
        return manifest

    def _send(self, target: Target, progress: Progress) -> CollectionEntry:
        """Insert the images or the texts, index them, and return their manifest entry."""
        client, collection = self._client, self.collections[target]
        nearest_of = min(collection.entry.ann.recall_at, client.max_results)
        nearest = NearestSoFar(self._queries(target), nearest_of)
        client.create_collection(self.generation, target, _schema(collection))
        done = self.resumed[target] = self._done.get(target, 0)
        passed = tokens = 0
        progress.start(collection.count, _UNITS[target])
        for number, part in enumerate(live_parts(collection, self._settings.batch_size), start=1):
            nearest.take(part.embeddings)
            tokens += int(part.lengths.sum())
            entries = entries_of(part)[max(0, done - passed) :]
            passed += len(part.items)
            _copy_photos(self._index.path, self._folder, part.items)
            if entries:
                client.upsert(self.generation, target, entries)
                if number % _BATCHES_A_NOTE == 0:
                    self._done[target] = passed
                    self._note()
            progress.advance(len(part.items))
        self._done[target] = passed
        self._note()
        client.open_collection(self.generation, target)
        found = client.count(self.generation, target)
        if found != passed:
            raise EngineError(
                ENGINE,
                f"generation {self.generation}: expected {passed} {target}, got {found}; it was "
                "not made live",
            )
        first_stage = self._calibrated(target, nearest)
        return replace(collection.entry, count=passed, token_count=tokens, ann=first_stage)

    def _calibrated(self, target: Target, nearest: NearestSoFar) -> AnnEntry:
        """Choose the search width of a collection, and measure its recall."""
        wanted = self._settings.ann_recall
        if wanted is None:
            wanted = self.collections[target].entry.ann.recall_wanted
        client, generation = self._client, self.generation
        chosen, curve = nearest.calibrate(client, generation, target, wanted)
        return AnnEntry(
            asked=self._location.index or "auto",
            factory=f"{ENGINE} {client.first_stage(generation, target).kind}",
            search_width=chosen.search_width,
            recall=chosen.recall,
            recall_at=nearest.count,
            recall_queries=len(nearest.queries),
            recall_wanted=wanted,
            curve=curve,
        )

    def _identity(self) -> bytes:
        entries = dump_config(self._index.manifest)
        del entries["replaces"]  # which tells nothing of the items
        manifest = json.dumps(entries, sort_keys=True).encode("utf-8")
        asked = dump_config(self._location)
        del asked["url"]  # the same Milvus may have another address the next time
        data = {
            "manifest": hashlib.sha256(manifest).hexdigest(),
            "changes": {
                target: None
                if collection.changes is None
                else [collection.changes.rows, collection.changes.sequence]
                for target, collection in self.collections.items()
            },
            "location": asked,
            "ann_recall": self._settings.ann_recall,
        }
        return json.dumps(data, sort_keys=True).encode("utf-8")

    def _note(self) -> None:
        done = json.dumps(self._done).encode("ascii")
        self._client.write_record(self.generation, {SOURCE: self.identity, _PROGRESS: done})

    def _queries(self, target: Target) -> NDArray[np.float32]:
        """Return embeddings to measure the recall with: of the other collection, if any."""
        others = [collection for each, collection in self.collections.items() if each != target]
        asking = [each.base.embeddings for each in (*others, self.collections[target])]
        return sample_queries(next(filter(len, asking), asking[0]), _RECALL_QUERIES)

    def _codec(self, target: Target) -> TokenCodec:
        """Return the codec, with the error feedback for items added later as in a build."""
        collection = self.collections[target]
        codec, feedback = collection.base.tokens.codec, None
        for other in TARGETS:
            if (
                collection.entry.token_dtype != "float16"
                and other != target
                and other in self.collections
            ):
                feedback = feedback_from(self.collections[other].base.tokens)
        return replace(codec, feedback=feedback)


def _schema(collection: FileCollection) -> CollectionSchema:
    longest = int(np.diff(collection.base.tokens.offsets).max(initial=0))
    if collection.changes is not None:
        longest = max(longest, int(collection.changes.token_counts.max(initial=0)))
    return CollectionSchema(
        count=collection.count,
        embedding_dim=collection.entry.embedding_dim,
        token_dim=collection.entry.token_dim,
        token_dtype=collection.entry.token_dtype,
        max_tokens=longest,
    )


def entries_of(part: PackedBatch) -> list[EngineItem]:
    """Return items in the form for Milvus; the arrays are views."""
    return [EngineItem(*each) for each in part.each()]


class NearestSoFar:
    """Exact nearest items of some queries among all items seen so far.

    Attributes:
        queries: (queries, dim) float32.
        count: Number of nearest items.
    """

    def __init__(self, queries: NDArray[np.float32], count: int) -> None:
        self.queries = queries
        self.count = count
        self._scores = np.empty((len(queries), 0), dtype=np.float32)

    def take(self, embeddings: NDArray[np.float32]) -> None:
        """Compare the queries with further embeddings, (items, dim)."""
        scores = np.concatenate([self._scores, self.queries @ embeddings.T], axis=1)
        beyond = scores.shape[1] - self.count
        if beyond > 0:
            scores = np.partition(scores, beyond, axis=1)[:, beyond:]
        self._scores = scores

    def calibrate(
        self, client: EngineClient, generation: int, target: Target, recall_wanted: float
    ) -> ChosenSearchWidth:
        """Choose the smallest search width that finds a share of the nearest items."""
        curve: list[RecallPoint] = []
        for width in client.first_stage(generation, target).widths or (None,):
            before = curve[-1].recall if curve else 0.0
            recall = self._recall(client, generation, target, width)
            curve.append(RecallPoint(search_width=width, oversample=1.0, recall=recall))
            if recall >= recall_wanted or is_saturated(before, recall):
                break
        return ChosenSearchWidth(choose(curve, recall_wanted), curve)

    def _recall(
        self, client: EngineClient, generation: int, target: Target, width: int | None
    ) -> float:
        """Return the share of the nearest items that Milvus finds.

        An item that is as near as the last of them counts as one of them.
        """
        wanted = min(self.count, self._scores.shape[1])
        if wanted == 0 or len(self.queries) == 0:
            return 1.0
        found = 0
        for query, scores in zip(self.queries, self._scores, strict=True):
            hits = client.search(
                EngineQuery(
                    generation=generation,
                    target=target,
                    embedding=query,
                    count=wanted,
                    width=width,
                )
            )
            least = scores.min() - _ROUNDING
            found += sum(hit.match >= least for hit in hits)
        return float(found / (wanted * len(self.queries)))


@contextmanager
def only_pusher(folder: Path) -> Generator[None]:
    """Lock the folder, which is created, against other pushes, and convert errors of the disk."""
    if (folder / CURRENT).exists():
        raise ConfigError(f"{folder}: expected a folder of its own, got an index of files")
    try:
        with lock_file(folder) as lock:
            try:
                lock_to_write(lock.fileno(), folder, wait=False)
            except BlockingIOError:
                raise IndexWriteError(folder, "another push to this folder is running") from None
            yield
    except OSError as error:
        reason = f"{error.strerror or error}; the live generation in the engine is unchanged"
        raise IndexWriteError(error.filename or folder, reason) from error


def _copy_photos(source: Path, folder: Path, items: Iterable[StoredItem]) -> None:
    """Copy the photos that were uploaded, named by the hash of their content: only we have them."""
    for item in items:
        if item.path is None or Path(item.path).is_absolute() or (folder / item.path).exists():
            continue
        make_folder((folder / item.path).parent)
        with atomic_file(folder / item.path) as partial:
            shutil.copyfile(source / item.path, partial)


def _write_folder(source: Path, folder: Path, manifest: Manifest, location: EngineLocation) -> None:
    """Write the model and the location of the index, each atomically."""
    model = manifest.model
    place = model_folder(folder, model.id)
    if place == folder / MODEL and place.exists() and not has_model(place, model):
        place = upgrade_model_folder(folder, model.id)  # the live generation keeps its own
    if not has_model(place, model):
        copy_model(model_folder(source, model.id), place, model)
    write_location(folder, location)


def _report(manifest: Manifest, resumed: dict[Target, int], dropped: list[int]) -> PushReport:
    collections = manifest.collections
    return PushReport(
        generation=manifest.generation,
        counts={target: entry.count for target, entry in collections.items()},
        resumed=resumed,
        first_stages={target: entry.ann for target, entry in collections.items()},
        dropped=dropped,
    )


def _check_unchanged(client: EngineClient, live: int | None, settings: PushSettings) -> None:
    if live is None or settings.discard_changes:
        return
    if CHANGED in (client.read_record(live) or {}):
        raise InputError(
            f"{ENGINE}: items were added to generation {live} or removed from it since it was "
            "pushed, which the index here does not have; `aladin index push --discard-changes` "
            "loses these changes"
        )


def _drop_old(client: EngineClient, live: int, keep: int) -> list[int]:
    """Remove older generations beyond `keep`, and those never completed."""
    older = [generation for generation in client.generations() if generation < live]
    whole = [generation for generation in older if is_whole(client.read_record(generation))]
    staying = _earlier(client, live, whole)[: keep - 1]
    dropped = [generation for generation in older if generation not in staying]
    for generation in dropped:
        client.drop_generation(generation)
    return dropped


def _earlier(client: EngineClient, live: int, whole: Sequence[int]) -> list[int]:
    """Return the complete generations that led to the live one, the nearest first."""
    return earlier_generations(live, whole, lambda each: read_generation(client, each).manifest)
