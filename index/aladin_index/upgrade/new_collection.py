"""One collection of the generation that an upgrade ends with: its files, then its changes."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from aladin_index.changes.writable import WritableGeneration, insert_encoding
from aladin_index.encode.kept_regions import KeptRegions, PhotoRegions
from aladin_index.generations.collection_writer import EncodedPart, items_of
from aladin_index.items.tables import StoredItem, insert_items, pack_boxes
from aladin_index.search.live_collection import LiveCollection
from aladin_index.tokens.codec import TokenCodec
from aladin_index.upgrade.parts import EncodedRows
from aladin_network.inference import Network

# Items in memory at a time. Tokens are rounded as they are packed together: the number is the same
# for every upgrade, so that the same encodings make the same files.
_ITEMS_AT_A_TIME = 1024


def live_rows(live: LiveCollection) -> NDArray[np.int64]:
    """Return the rows of a collection that are not deleted, ascending."""
    selection = live.selection
    if selection is not None:
        return selection.rows
    return np.arange(live.count, dtype=np.int64)


class Carried(NamedTuple):
    """Numbers of changes that were carried over to a new generation."""

    added: int
    removed: int


class _Encoded(NamedTuple):
    """Some items as the new model encoded them.

    Attributes:
        items: Items with the sizes and boxes of the photos that were read.
        embeddings: (items, d_match).
        regions: Tokens, their numbers and the boxes that came with them.
    """

    items: list[StoredItem]
    embeddings: NDArray[np.float32]
    regions: PhotoRegions


@dataclass(frozen=True)
class NewCollection:
    """Images or texts of the new generation.

    Attributes:
        live: The live collection when the generation was begun.
        encoded: What the new model had encoded.
        kept: (items,) int64, the live rows that the generation has, ascending; the place of a row
            is its row there.
    """

    live: LiveCollection
    encoded: EncodedRows
    kept: NDArray[np.int64]

    def parts(self, codec: TokenCodec, kept_regions: KeptRegions | None) -> Iterator[EncodedPart]:
        """Yield the items with their encodings, in the order of their rows.

        Args:
            codec: Codec of the stored tokens.
            kept_regions: Chooses the regions to store of a photo, or None to store all.
        """
        for start in range(0, len(self.kept), _ITEMS_AT_A_TIME):
            rows = self.kept[start : start + _ITEMS_AT_A_TIME]
            read = _read(self.live, self.encoded, rows, kept_regions)
            tokens, lengths, _ = read.regions
            yield EncodedPart(read.items, read.embeddings, codec.pack(tokens), lengths)

    def carry(
        self,
        new: WritableGeneration,
        live: LiveCollection,
        encoded: EncodedRows,
        network: Network,
    ) -> Carried:
        """Add to the new generation what the live one has by now, and remove what it has not.

        Args:
            new: The new generation, in its place and not live.
            live: The live collection, which does not change during the call.
            encoded: What the new model has encoded; what is not encoded is left out.
            network: The new model.
        """
        rows = live_rows(live)
        gone = np.flatnonzero(~np.isin(self.kept, rows)).tolist()
        added = rows[~np.isin(rows, self.kept)]
        added = added[encoded.are_encoded(added)]
        if len(gone) == len(added) == 0:
            return Carried(0, 0)
        side = new.side(live.target)
        chosen_by = new.region_texts if live.target == "images" else None
        kept_regions = None if chosen_by is None else KeptRegions.of(*chosen_by, network)
        with side.transaction() as connection:
            for row in gone:
                side.remove(row)
            next_row = side.next_row()
            for start in range(0, len(added), _ITEMS_AT_A_TIME):
                part = added[start : start + _ITEMS_AT_A_TIME]
                read = _read(live, encoded, part, kept_regions)
                tokens, lengths, _ = read.regions
                ends = np.cumsum(lengths).tolist()
                for place, (item, end) in enumerate(zip(read.items, ends, strict=True)):
                    packed = side.codec.pack(tokens[end - int(lengths[place]) : end])
                    vector = side.vector(read.embeddings[place], packed)
                    insert_items(connection, [item._replace(row=next_row)])
                    insert_encoding(connection, next_row, vector, packed)
                    next_row += 1
        return Carried(len(added), len(gone))


def _read(
    live: LiveCollection,
    encoded: EncodedRows,
    rows: NDArray[np.int64],
    kept_regions: KeptRegions | None,
) -> _Encoded:
    """Read some items with their new encodings, in their order."""
    items = items_of(live, rows)
    boxes: list[NDArray[np.float32] | None] = [None] * len(items)
    for part, places, among in encoded.by_part(rows):
        sizes = part.sizes_px[places].tolist()
        for place, (width, height), own in zip(among, sizes, places.tolist(), strict=True):
            boxes[place] = part.boxes[own]
            if width:
                items[place] = items[place]._replace(width_px=width, height_px=height)
    embeddings, lengths = encoded.embeddings(rows), encoded.lengths(rows)
    regions = PhotoRegions(encoded.tokens(rows).values.astype(np.float32), lengths, boxes)
    if kept_regions is not None and live.target == "images":
        regions = kept_regions.select(embeddings, regions, [item.size_px for item in items])
    items = [
        item._replace(boxes=None if own is None else pack_boxes(own))
        for item, own in zip(items, regions.boxes, strict=True)
    ]
    return _Encoded(items, embeddings, regions)
