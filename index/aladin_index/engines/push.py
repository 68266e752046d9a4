"""Publishes an index of files to a vector database, as a new generation."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import NamedTuple

from aladin_index.engines.client import EngineClient
from aladin_index.engines.push_files import (
    NearestSoFar,
    PushSource,
    copy_photos,
    entries_of,
    only_pusher,
    write_folder,
)
from aladin_index.engines.record import CHANGED, SOURCE, GenerationRecord, is_whole, read_generation
from aladin_index.format.layout import EngineLocation, location_of
from aladin_index.format.manifest import AnnEntry, CollectionEntry, Manifest
from aladin_index.generations.history import earlier_generations
from aladin_index.generations.reader import SearchIndex, open_index
from aladin_index.items.tables import StoredItem
from aladin_index.tokens.codec import TokenCodec
from aladin_network.errors import ConfigError, EngineError, InputError
from aladin_network.types import NullProgress, Progress, Target

# The entry of an unfinished record with the number of images and texts inserted so far.
_PROGRESS = "progress.json"
# Number of batches that an interrupted push repeats at most.
_BATCHES_A_NOTE = 8
_UNITS: dict[Target, str] = {"images": "photos", "texts": "texts"}


@dataclass(frozen=True, kw_only=True)
class PushSettings:
    """Options of a push.

    Attributes:
        batch_size: Number of items that are passed to the client of the vector database at a time.
        keep: Number of generations to keep in the vector database, including the new one.
        ann_recall: Share of the exact nearest items that the first stage of the vector database has
            to find, in (0, 1]; the search width is chosen accordingly. None for the value that the
            index was built for.
        discard_changes: Whether to continue if items were added to or removed from the live
            generation in the vector database; the new generation does not contain these changes.
        unless_live: Do nothing if the live generation in the vector database was pushed from the
            index in its present state, into the same folder and with the same options.
    """

    batch_size: int = 256
    keep: int = 2
    ann_recall: float | None = None
    discard_changes: bool = False
    unless_live: bool = False

    def __post_init__(self) -> None:
        """Check the values.

        Raises:
            ConfigError: If a number is below 1 or the recall is outside (0, 1].
        """
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
        generation: Generation that is now live in the vector database.
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
    """Copy all live items of an index to a vector database, as its new live generation.

    The previous generation stays live until the new one is complete, counted and searchable. An
    interrupted push continues when it is repeated with the same index and options; otherwise it
    starts anew. Run one push at a time per name: when it ends, it removes unfinished ones.

    Args:
        index: Folder of an index in files; not changed.
        folder: Folder that will represent the index in the vector database; created or updated.
        location: Location of the index in the vector database.
        client: Client of that vector database; not closed.
        settings: Options of the push.
        progress: Receives the progress in items.

    Raises:
        ConfigError: If there is an index of files at `folder`.
        InputError: If `index` is not an index in files, or has a hubness correction, or changes
            would be lost, including changes made during the push.
        EngineError: If the vector database rejects a call, or does not hold as many items as were
            sent to it.
        EngineUnavailableError: If the vector database does not respond.
        SearchIndexError: If the index cannot be read or the disk cannot be written.
    """
    with open_index(index, encodes=False) as opened, only_pusher(folder):
        return _push_opened(opened, folder, location, client, settings, progress or NullProgress())


def _push_opened(
    opened: SearchIndex,
    folder: Path,
    location: EngineLocation,
    client: EngineClient,
    settings: PushSettings,
    progress: Progress,
) -> PushReport:
    """Push an open index into a folder that is locked."""
    index = opened.path
    if opened.manifest.correction is not None:
        raise InputError(
            f"{index}: expected an index without a hubness correction, whose biases no vector "
            "database stores; build one with a checkpoint that has none"
        )
    source = PushSource(opened)
    live = client.live_generation()
    if live is not None and settings.unless_live and location_of(folder) == location:
        pieces = client.read_record(live) or {}
        if pieces.get(SOURCE) == source.identity(location, settings.ann_recall):
            manifest = read_generation(client, live).manifest
            return _report(manifest, dict.fromkeys(source.sides, 0), dropped=[])
    _check_unchanged(client, live, settings)
    push = _Push(client, source, location, settings, partial(copy_photos, index, folder))
    push.begin(live)
    sides: dict[Target, CollectionEntry] = {}
    for target in source.sides:
        sides[target] = push.send(target, progress)
    manifest = replace(
        source.manifest,
        generation=push.generation,
        replaces=live,
        images=sides.get("images"),
        texts=sides.get("texts"),
        files={},
    )
    codecs: dict[Target, TokenCodec] = {target: source.codec(target) for target in sides}
    record = GenerationRecord(manifest=manifest, codecs=codecs, source=push.identity)
    client.write_record(push.generation, record.pieces())
    write_folder(index, folder, manifest.model, location)
    # Repeated, because a push takes long: services may have received changes meanwhile.
    _check_unchanged(client, live, settings)
    client.make_live(push.generation)
    dropped = _drop_old(client, push.generation, settings.keep)
    return _report(manifest, push.resumed, dropped)


def rollback_engine(client: EngineClient, to: int | None = None) -> int:
    """Make an earlier generation live again, with its changes, and return its number.

    Args:
        client: Client of the vector database.
        to: Complete generation to make live, or None for the one that the live one replaced.

    Raises:
        InputError: If there is no such generation.
        EngineUnavailableError: If the vector database does not respond.
    """
    live = client.live_generation()
    whole = [each for each in client.generations() if is_whole(client.read_record(each))]
    earlier = [] if live is None else _earlier(client, live, whole)
    if to is None and not earlier:
        raise InputError(f"{client.kind}: no generation before {live} is left to go back to")
    chosen = earlier[0] if to is None else to
    if chosen not in whole or chosen == live:
        others = ", ".join(str(each) for each in whole if each != live) or "none"
        raise InputError(f"{client.kind}: expected another complete one ({others}), got {to}")
    client.make_live(chosen)
    return chosen


class _Push:
    """A push in progress.

    Attributes:
        generation: Generation that is being filled.
        identity: Identity of the push, see `PushSource.identity`.
        resumed: Number of items of each collection that an interrupted push had inserted.
    """

    def __init__(
        self,
        client: EngineClient,
        source: PushSource,
        location: EngineLocation,
        settings: PushSettings,
        take_along: Callable[[Sequence[StoredItem]], None],
    ) -> None:
        self._client = client
        self._source = source
        self._location = location
        self._settings = settings
        self._take_along = take_along
        self._done: dict[str, int] = {}
        self.generation = 1
        self.identity = source.identity(location, settings.ann_recall)
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

    def send(self, target: Target, progress: Progress) -> CollectionEntry:
        """Insert the images or the texts, index them, and return their manifest entry."""
        client, side, schema = self._client, self._source.sides[target], self._source.schema(target)
        ann = side.entry.ann
        nearest_of = min(ann.recall_at, client.max_results)
        nearest = NearestSoFar(self._source.queries(target), nearest_of)
        client.create_collection(self.generation, target, schema)
        done = self.resumed[target] = self._done.get(target, 0)
        passed = tokens = 0
        progress.start(schema.count, _UNITS[target])
        for number, part in enumerate(
            self._source.parts(target, self._settings.batch_size), start=1
        ):
            nearest.take(part.embeddings)
            tokens += int(part.lengths.sum())
            entries = entries_of(part)[max(0, done - passed) :]
            passed += len(part.items)
            self._take_along(part.items)
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
                client.kind,
                f"generation {self.generation}: expected {passed} {target}, got {found}; it was "
                "not made live",
            )
        first_stage = self._calibrated(target, nearest)
        return replace(side.entry, count=passed, token_count=tokens, ann=first_stage)

    def _calibrated(self, target: Target, nearest: NearestSoFar) -> AnnEntry:
        """Choose the search width of a collection, and measure its recall."""
        wanted = self._settings.ann_recall
        if wanted is None:
            wanted = self._source.sides[target].entry.ann.recall_wanted
        client, generation = self._client, self.generation
        chosen, curve = nearest.calibrate(client, generation, target, wanted)
        return AnnEntry(
            asked=self._location.index or "auto",
            factory=f"{client.kind} {client.first_stage(generation, target).kind}",
            search_width=chosen.search_width,
            recall=chosen.recall,
            recall_at=nearest.count,
            recall_queries=len(nearest.queries),
            recall_wanted=wanted,
            curve=curve,
        )

    def _note(self) -> None:
        """Store the progress, for a push that continues this one."""
        done = json.dumps(self._done).encode("ascii")
        self._client.write_record(self.generation, {SOURCE: self.identity, _PROGRESS: done})


def _report(manifest: Manifest, resumed: dict[Target, int], dropped: list[int]) -> PushReport:
    sides = manifest.sides
    return PushReport(
        generation=manifest.generation,
        counts={target: entry.count for target, entry in sides.items()},
        resumed=resumed,
        first_stages={target: entry.ann for target, entry in sides.items()},
        dropped=dropped,
    )


def _check_unchanged(client: EngineClient, live: int | None, settings: PushSettings) -> None:
    if live is None or settings.discard_changes:
        return
    if CHANGED in (client.read_record(live) or {}):
        raise InputError(
            f"{client.kind}: items were added to generation {live} or removed from it since it was "
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
