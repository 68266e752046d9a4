"""What is added to a generation in a vector database, and deleted from it, while it is upgraded."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cached_property
from pathlib import Path

import numpy as np

from aladin_index.encode.item_changer import new_items
from aladin_index.encode.item_encoders import item_encoder
from aladin_index.encode.read_ahead import NumberedItem, StageSeconds, encoded_batches
from aladin_index.encode.region_sources import RegionSource
from aladin_index.engines.client import EngineClient, EngineItem
from aladin_index.engines.pull import Rows, rows_of
from aladin_index.engines.record import read_generation
from aladin_index.format.records import SkippedItem
from aladin_index.items.tables import StoredItem
from aladin_index.upgrade.encoding import EncodingSettings, source_of
from aladin_network.inference import Network
from aladin_network.types import NullProgress, Target

_ITEMS_AT_A_TIME = 1000


class EngineChanges:
    """Carries changes of a generation over to one of another model.

    Attributes:
        carried: Number of changes that were carried over.
        skipped: Added items that the other model cannot encode.
    """

    def __init__(
        self,
        folder: Path,
        client: EngineClient,
        generation: int,
        load: Callable[[], Network],
        settings: EncodingSettings,
        regions: RegionSource | None = None,
    ) -> None:
        """Carry nothing yet.

        Args:
            folder: Folder that represents the index, with uploaded photos.
            client: Client of the vector database.
            generation: Generation that is changed.
            load: Loads the other model; called when there is something to encode.
            settings: How items are encoded.
            regions: Regions of photos, for a model that reads regions.
        """
        self.carried = 0
        self.skipped: list[SkippedItem] = []
        self._folder = folder
        self._client = client
        self._generation = generation
        self._load = load
        self._settings = settings
        self._regions = regions

    @cached_property
    def _network(self) -> Network:
        return self._load()

    def carry(
        self,
        generation: int,
        target: Target,
        known: Mapping[str, int],
        stored: Mapping[str, int] | None = None,
    ) -> Rows:
        """Carry over the changes of one collection; return the items that it has now.

        Args:
            generation: The generation of the other model.
            target: The collection.
            known: Rows of the items that were carried over before, by their ids.
            stored: Rows of the items of the other generation when it went live: what was changed
                there since then is newer, and stays. None as long as it is not live.
        """
        client = self._client
        now = rows_of(client, self._generation, target)
        changed = [item_id for item_id, row in now.items() if known.get(item_id) != row]
        gone = [item_id for item_id in known if item_id not in now]
        if stored is not None and (changed or gone):
            found = client.fetch(generation, target, [*changed, *gone])
            there = {entry.item.id: entry.item.row for entry in found}
            changed, gone = (
                [item_id for item_id in ids if there.get(item_id) == stored.get(item_id)]
                for ids in (changed, gone)
            )
        skipped = len(self.skipped)
        for start in range(0, len(changed), _ITEMS_AT_A_TIME):
            some = changed[start : start + _ITEMS_AT_A_TIME]
            items = [entry.item for entry in client.fetch(self._generation, target, some)]
            # Deleted since they were listed: the next pass deletes what was carried over before.
            for item_id in set(some) - {item.id for item in items}:
                if item_id in known:
                    now[item_id] = known[item_id]
                else:
                    del now[item_id]
            for entries in self._encoded(generation, target, items):
                client.upsert(generation, target, entries)
        # Of what was replaced by something that cannot be encoded, nothing stays either.
        if gone := [*gone, *(item.id for item in self.skipped[skipped:])]:
            client.delete(generation, target, gone)
        self.carried += len(changed) + len(gone)
        return now

    def _encoded(
        self, generation: int, target: Target, items: Sequence[StoredItem]
    ) -> Iterator[list[EngineItem]]:
        """Encode items batch by batch, and skip those that cannot be."""
        settings = self._settings
        codec = read_generation(self._client, generation).codecs[target]
        numbered: list[NumberedItem] = []
        for place, item in enumerate(items):
            source = source_of(self._folder, item, target)
            if source is None:
                self.skipped.append(SkippedItem(item.id, "it has no photo"))
            else:
                numbered.append((place, source))
        sources, size = dict(numbered), settings.batch_size
        batches = [numbered[start : start + size] for start in range(0, len(numbered), size)]
        encoder = item_encoder(target, self._network, settings.limits, self._regions, exif=False)
        for batch in encoded_batches(
            encoder, batches, settings.readers, StageSeconds(), NullProgress()
        ):
            self.skipped += batch.left_out
            if batch.encoding is None:
                continue
            usable = batch.usable
            new = new_items([sources[each.row] for each in usable], usable, batch.encoding, None)
            ends = np.cumsum(new.lengths)
            entries: list[EngineItem] = []
            for number, (each, form) in enumerate(zip(usable, new.items, strict=True)):
                tokens = new.tokens[ends[number] - new.lengths[number] : ends[number]]
                item = items[each.row]._replace(
                    width_px=form.width_px, height_px=form.height_px, boxes=form.boxes
                )
                entries.append(EngineItem(item, new.embeddings[number], codec.pack(tokens)))
            yield entries
