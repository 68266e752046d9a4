"""One collection during an upgrade: what is encoded of it, and what the new generation gets."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from aladin_index.building.shards import LocalEncoding, ShardItems, ShardWork
from aladin_index.changes.writable import WritableCollection
from aladin_index.encode.item_encoders import CUT, warn_of_cut
from aladin_index.encode.read_ahead import StageSeconds
from aladin_index.encode.source_items import Prepared, SourceItem
from aladin_index.format.skipped import SkippedItem
from aladin_index.generations.collection_writer import CollectionSource, items_of
from aladin_index.generations.reader import SearchIndex
from aladin_index.items.tables import StoredItem, pack_boxes
from aladin_index.search.file_collection import FileCollection
from aladin_index.settings import BuildSettings
from aladin_index.tokens.codec import TokenCodec
from aladin_index.upgrade.encodings import KEY_DTYPE, Encodings, key_of, lack_of, source_of
from aladin_network.types import Progress, Target

_UNITS: dict[Target, str] = {"images": "photos", "texts": "texts"}
# Items that are looked at, and items whose encodings are in memory, at a time.
_LOOKED_AT, _IN_MEMORY = 4096, 1024


class Waiting(NamedTuple):
    """Rows that are to be encoded, and their keys."""

    rows: NDArray[np.int64]
    keys: NDArray[np.bytes_]


class UpgradedCollection:
    """One collection during an upgrade.

    Attributes:
        place: For each row of the live generation and its changes the place of its encoding, or -1.
        kept: Rows that the new generation has, in the order of its own.
    """

    def __init__(
        self,
        index: SearchIndex,
        target: Target,
        encodings: Encodings,
        encoding: LocalEncoding,
        settings: BuildSettings,
        progress: Progress,
    ) -> None:
        self.live: FileCollection = index.collection(target)
        self.encodings = encodings
        self.place = np.empty(0, dtype=np.int64)
        self.kept = np.empty(0, dtype=np.int64)
        self._index = index
        self._target: Target = target
        self._encoding, self._settings, self._progress = encoding, settings, progress
        self._reasons: dict[str, str] = {}

    @property
    def rows(self) -> NDArray[np.int64]:
        """Live rows, ascending."""
        selection = self.live.selection
        return np.arange(self.live.count) if selection is None else selection.rows

    def look(self) -> Waiting:
        """Look at what was added and removed since the last call."""
        self.live = self._index.collection(self._target)
        known, changes = len(self.place), self.live.changes
        total = self.live.entry.count if changes is None else changes.rows
        self.place = np.append(self.place, np.full(total - known, -1, dtype=np.int64))
        new = self.rows[self.rows >= known]
        waiting: list[int] = []
        keys: list[bytes] = []
        for start in range(0, len(new), _LOOKED_AT):
            items = items_of(self.live, new[start : start + _LOOKED_AT])
            of_items = [key_of(self._index.path, item) for item in items]
            places = self.encodings.find(np.array(of_items, dtype=KEY_DTYPE))
            for item, key, place in zip(items, of_items, places.tolist(), strict=True):
                self.place[item.row] = place
                if place >= 0:
                    continue
                lack = lack_of(self._index.path, item, self._target)
                if lack is None:
                    waiting.append(item.row)
                    keys.append(key)
                else:
                    self._reasons[item.id] = lack
        return Waiting(np.array(waiting, dtype=np.int64), np.array(keys, dtype=KEY_DTYPE))

    def encode(self, waiting: Waiting) -> None:
        """Encode rows, shard by shard."""
        rows, keys = waiting
        if len(rows) == 0:
            return
        batch = self._settings.batch_size
        size = -(-self._settings.shard_items // batch) * batch
        folder = self.encodings.begin(keys)
        shards = {
            folder / f"shard-{start // size:05d}": range(start, min(start + size, len(rows)))
            for start in range(0, len(rows), size)
        }
        live = self.live

        def sources(among: range) -> list[SourceItem]:
            items = items_of(live, rows[among.start : among.stop])
            return [source_of(self._index.path, item, self._target) for item in items]

        self._progress.start(len(rows), _UNITS[self._target])
        done = int(np.count_nonzero(self.place[self.rows] >= 0))
        if done:
            self._progress.note(resumed_after=float(done))
        form = self.encodings.form
        work = ShardWork(target=self._target, form=form, shards=shards, items=sources)
        self._encoding.encode(work, self._progress, StageSeconds())
        for shard in self.encodings.finish(folder):
            self._reasons.update(shard.skipped)
        self.place[rows] = self.encodings.find(keys)

    def catch_up(self) -> None:
        """Encode what was added meanwhile, until there is nothing new."""
        while len((waiting := self.look()).rows):
            self.encode(waiting)

    def missing(self, waiting: NDArray[np.int64] | None = None) -> list[SkippedItem]:
        """Return the live items that cannot be encoded, of which `waiting` have not been tried."""
        rows = self.rows[self.place[self.rows] < 0]
        if waiting is not None:
            rows = np.setdiff1d(rows, waiting)
        return [
            SkippedItem(item.id, self._reasons.get(item.id, "it has no source"))
            for item in items_of(self.live, rows)
        ]

    def source(self, codec: TokenCodec, skipped: Sequence[SkippedItem]) -> CollectionSource:
        """Choose the rows of the new generation, and describe the collection by them."""
        rows = self.rows[self.place[self.rows] >= 0]
        self.kept = rows[np.argsort(self.place[rows])]
        if self._target == "texts":
            shards = self.encodings.shards
            warn_of_cut(found.metadata for shard in shards for found in shard.prepared())
        return CollectionSource(
            embedding_dim=self.encodings.form.embedding_dim,
            codec=codec,
            parts=(
                read.packed(places, items, codec)
                for read, places, items in self._encoded(self.kept)
            ),
            skipped=skipped,
            count=len(self.kept),
        )

    def carry(self, new: WritableCollection) -> int:
        """Bring the new generation up to date; return the number of additions and deletions."""
        rows = self.rows
        gone = np.flatnonzero(~np.isin(self.kept, rows)).tolist()
        added = np.setdiff1d(rows[self.place[rows] >= 0], self.kept)
        if len(gone) + len(added) == 0:
            return 0
        added = added[np.argsort(self.place[added])]
        with new.transaction() as connection:
            for row in gone:
                new.remove(row)
            for read, places, items in self._encoded(added):
                new.add(connection, read.bare(places, items), "error")
        return len(gone) + len(added)

    def _encoded(
        self, rows: NDArray[np.int64]
    ) -> Iterator[tuple[ShardItems, NDArray[np.int64], list[StoredItem]]]:
        """Yield what reads the encodings of items, their places there, and their new form."""
        for among, read, places in self.encodings.read(self.place[rows], _IN_MEMORY):
            items = items_of(self.live, rows[among])
            pairs = zip(items, read.prepared(places), strict=True)
            yield read, places, [_renewed(item, found, self._target) for item, found in pairs]


def _renewed(item: StoredItem, found: Prepared, target: Target) -> StoredItem:
    """Return an item with what was found out when it was encoded again."""
    if target == "texts":
        metadata = {name: value for name, value in item.metadata.items() if name != CUT}
        return item._replace(metadata={**metadata, **found.metadata})
    boxes = None if found.boxes is None else pack_boxes(found.boxes)
    width_px, height_px = found.size_px or (item.width_px, item.height_px)
    return item._replace(
        width_px=width_px,
        height_px=height_px,
        boxes=boxes,
        fingerprint=found.fingerprint or item.fingerprint,
    )
