"""Adds items to the live generation in a vector database, and deletes items from it."""

from __future__ import annotations

import secrets
import threading
import time
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from aladin_index.changes.writable import OF_DUPLICATES, Outcomes
from aladin_index.changes.writer import AddReport, DeleteReport
from aladin_index.encode.encoded import AnyBatch
from aladin_index.engines.milvus import EngineClient, read_generation, require_live
from aladin_index.engines.record import GenerationRecord
from aladin_index.engines.rows import EngineItem, is_unicode, item_text
from aladin_index.format.manifest import CollectionEntry
from aladin_index.items.tables import StoredItem
from aladin_network.errors import (
    DuplicateItemError,
    IndexMismatchError,
    IndexWriteError,
    InputError,
    NoSuchTargetError,
    UnknownItemError,
    brief,
)
from aladin_network.types import OnDuplicate, Target

# A row number is the time in milliseconds, followed by this many random bits: items added later
# have larger rows, even if added by other machines, and collisions are very unlikely. 63 bits last
# until the year 2248.
_CHANCE_BITS = 20


class EngineWriter:
    """Changes an index in a vector database; a thread-safe `ItemWriter`.

    A call applies to the generation that is live when it starts, and has been acknowledged by the
    engine when it returns. Engines have no transactions: if a call fails, some of the items may
    have been inserted, and repeating it with ``on_duplicate="replace"`` completes it. If two
    machines add the same id at the same time, the later one wins, whatever their `on_duplicate`.
    """

    def __init__(self, root: Path, client: EngineClient, model_id: str) -> None:
        self._root = root
        self._client = client
        self._model_id = model_id
        self._lock = threading.Lock()
        self._record: GenerationRecord | None = None
        self._last_row = 0

    def close(self) -> None:
        self._client.close()

    def known(self, target: Target, ids: Sequence[str]) -> set[str]:
        """Return the ids among `ids` that are in the index."""
        with self._lock:
            record = self._live()
            _collection(record, target)
            return self._known(record, target, ids)

    def add(self, target: Target, new: AnyBatch, on_duplicate: OnDuplicate) -> AddReport:
        with self._lock:
            record = self._live()
            new.check_fits(_collection(record, target))
            ids = [item.id for item in new.items]
            for item in new.items:
                _check_unicode(item)
            there = self._known(record, target, ids)
            outcomes: Outcomes = {"added": [], "replaced": [], "kept": []}
            # Position of the item to keep for each id: an id may occur twice.
            chosen: dict[str, int] = {}
            for place, item_id in enumerate(ids):
                exists = item_id in there or item_id in chosen
                outcome = OF_DUPLICATES.get(on_duplicate) if exists else "added"
                if outcome is None:
                    raise DuplicateItemError(target, item_id)
                outcomes[outcome].append(item_id)
                if outcome != "kept":
                    chosen[item_id] = place
            if chosen:
                self._write_photos(new)
                entries = self._entries(record, target, new, list(chosen.values()))
                record = self._mark_changed(record)
                self._client.upsert(record.manifest.generation, target, entries)
            return AddReport(record.manifest.generation, outcomes)

    def delete(
        self, target: Target, ids: Sequence[str], *, ignore_missing: bool = False
    ) -> DeleteReport:
        with self._lock:
            record = self._live()
            _collection(record, target)
            wanted = list(dict.fromkeys(ids))
            there = self._known(record, target, wanted)
            report = DeleteReport(record.manifest.generation, [], [])
            for item_id in wanted:
                if item_id not in there and not ignore_missing:
                    raise UnknownItemError(target, item_id)
                (report.deleted if item_id in there else report.missing).append(item_id)
            if report.deleted:
                record = self._mark_changed(record)
                self._client.delete(record.manifest.generation, target, report.deleted)
            return report

    def _live(self) -> GenerationRecord:
        generation = require_live(self._client, self._root)
        if self._record is None or self._record.manifest.generation != generation:
            self._record = read_generation(self._client, generation)
        expected = self._record.manifest.model.id
        if expected != self._model_id:
            raise IndexMismatchError(f"{self._root}: model", expected, self._model_id)
        return self._record

    def _known(self, record: GenerationRecord, target: Target, ids: Sequence[str]) -> set[str]:
        asked = [item_id for item_id in dict.fromkeys(ids) if is_unicode(item_id)]
        found = self._client.fetch(record.manifest.generation, target, asked) if asked else []
        return {entry.item.id for entry in found}

    def _mark_changed(self, record: GenerationRecord) -> GenerationRecord:
        """Mark the generation as different from what was pushed, before changing it."""
        if not record.changed:
            record = record.with_changes()
            self._client.write_record(record.manifest.generation, record.pieces())
            self._record = record  # only now: a mark that failed is made by the next change
        return record

    def _entries(
        self, record: GenerationRecord, target: Target, new: AnyBatch, places: Sequence[int]
    ) -> list[EngineItem]:
        codec = record.codecs[target]
        each = list(new.each())
        entries: list[EngineItem] = []
        for place, row in zip(places, self._next_rows(len(places)), strict=True):
            item, embedding, tokens = each[place]
            vector = np.ascontiguousarray(embedding, dtype=np.float32)
            entries.append(EngineItem(item._replace(row=row), vector, codec.pack(tokens)))
        return entries

    def _next_rows(self, count: int) -> range:
        now = time.time_ns() // 1_000_000 << _CHANCE_BITS | secrets.randbits(_CHANCE_BITS)
        first = max(now, self._last_row + 1)
        self._last_row = first + count - 1
        return range(first, first + count)

    def _write_photos(self, new: AnyBatch) -> None:
        try:
            for photo in new.photos:
                photo.write(self._root)
        except OSError as error:
            reason = f"{error.strerror or error}; no item of this call was added"
            raise IndexWriteError(error.filename or self._root, reason) from error


def _collection(record: GenerationRecord, target: Target) -> CollectionEntry:
    entry = record.manifest.collection(target)
    if entry is None:
        raise NoSuchTargetError(target, " and ".join(record.manifest.targets))
    return entry


def _check_unicode(item: StoredItem) -> None:
    if not is_unicode(item_text(item)):
        raise InputError(f"item {brief(item.id)}: its id, text or metadata are not valid Unicode")
