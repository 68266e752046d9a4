"""Encoding of the live items by the new model, in parts that are searched as they are finished.

The first part of a collection is a random sample, by which bridges and scales are fitted; the other
items follow in the order of their rows, those that are added meanwhile last. Items are encoded from
their sources: photos from their files or from the bytes that the index keeps, texts from the items.
An item without a source is skipped, and tried once more when the upgrade is resumed.
"""

from __future__ import annotations

import shutil
from collections.abc import Generator, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from itertools import chain, islice
from math import ceil
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from aladin_index.build.shards import ShardFormat, write_shard
from aladin_index.encode.item_encoders import ItemEncoder, item_encoder
from aladin_index.encode.read_ahead import (
    BATCHES_AHEAD,
    EncodedItems,
    NumberedItem,
    StageSeconds,
    encoded_batches,
)
from aladin_index.encode.region_sources import RegionSource
from aladin_index.encode.source_items import ImageItem, SourceItem, TextItem
from aladin_index.format.upgrade_plan import (
    SKIPPED_ROWS,
    SkippedRow,
    part_folders,
    parts_folder,
    read_sample,
    read_skipped_rows,
    write_sample,
)
from aladin_index.items.tables import StoredItem
from aladin_index.items.uploaded_photos import photo_of
from aladin_index.search.live_collection import LiveCollection
from aladin_index.upgrade.new_collection import live_rows
from aladin_index.upgrade.successor import SuccessorIndex
from aladin_network.errors import ConfigError
from aladin_network.files import make_folder, write_json
from aladin_network.inference import Network
from aladin_network.photos.decoding import DEFAULT_LIMITS, ImageLimits
from aladin_network.types import NullProgress, Progress, Target

_UNITS: dict[Target, str] = {"images": "photos", "texts": "texts"}
_NO_SOURCE = "its photo is neither a file nor kept by the index"


@dataclass(frozen=True, kw_only=True)
class EncodingSettings:
    """How items are encoded again.

    Attributes:
        batch_size: Number of items that are encoded together.
        part_items: Number of items of a part, rounded up to whole batches; the most that a killed
            upgrade loses.
        sample_items: Number of items of the random sample, which is encoded first.
        readers: Number of threads that read and decode photos ahead of the network.
        limits: Resource limits per photo.
    """

    batch_size: int = 128
    part_items: int = 1024
    sample_items: int = 2048
    readers: int = 2
    limits: ImageLimits = DEFAULT_LIMITS

    def __post_init__(self) -> None:
        """Check the values.

        Raises:
            ConfigError: If a number is below 1.
        """
        for name in ("batch_size", "part_items", "sample_items", "readers"):
            value: int = getattr(self, name)
            if value < 1:
                raise ConfigError(f"{name}: expected at least 1, got {value}")


def source_of(root: Path, item: StoredItem, target: Target) -> SourceItem | None:
    """Return what an item is encoded from, or None for a photo that no file has.

    Args:
        root: Index folder.
        item: Item of the index.
        target: Collection of the item.
    """
    if target == "texts":
        return TextItem(id=item.id, text=item.text or "", image_id=item.image_id)
    photo = photo_of(root, item)
    if photo is None:
        return None
    return ImageItem(
        id=item.id,
        uri=item.uri or item.id,
        path=photo.path,
        offset=photo.offset,
        length=photo.length,
    )


@dataclass
class PartsWriter:
    """Encodes the items of one collection that are not encoded yet.

    Attributes:
        index: What is encoded so far.
        target: Images or texts.
        settings: How items are encoded.
        regions: Regions of photos, for a network that reads regions.
        seconds: Times by stage.
        progress: Progress, advanced by the items.
        skipped: Items that could not be encoded, by row; those of an earlier process are tried
            again.
    """

    index: SuccessorIndex
    target: Target
    settings: EncodingSettings
    regions: RegionSource | None = None
    seconds: StageSeconds = field(default_factory=StageSeconds)
    progress: Progress = field(default_factory=NullProgress)
    skipped: dict[int, SkippedRow] = field(default_factory=dict[int, SkippedRow])

    def __post_init__(self) -> None:
        self._folder = parts_folder(self.index.path, self.target)
        self._form = ShardFormat.of(self._network)
        make_folder(self._folder)
        for leftover in self._folder.glob(".*.partial"):
            if leftover.is_dir():
                shutil.rmtree(leftover)
            else:
                leftover.unlink()
        self._recorded = read_skipped_rows(self.index.path, self.target)
        self._encoder: ItemEncoder | None = None

    @property
    def _network(self) -> Network:
        return self.index.checkpoint.model

    def write_sample(self) -> None:
        """Encode a random sample of the items, the same one after an interruption."""
        sample = read_sample(self.index.path, self.target)
        if sample is None:
            rows = live_rows(self.index.live.side(self.target))
            count = min(self.settings.sample_items, len(rows))
            sample = np.sort(np.random.default_rng(0).choice(rows, count, replace=False))
            write_sample(self.index.path, self.target, sample)
        waiting = self.waiting()
        sample = waiting[np.isin(waiting, sample)]
        if len(sample):
            self._write(sample)

    def write_rest(self) -> None:
        """Encode what is not encoded yet, until there is nothing that was added meanwhile."""
        while len(rows := self.waiting()):
            self._write(rows)

    def waiting(self) -> NDArray[np.int64]:
        """Return the live rows that are neither encoded nor skipped."""
        rows = self.missing()
        tried = np.array(list(self.skipped), dtype=np.int64)
        return rows[~np.isin(rows, tried)]

    def missing(self) -> NDArray[np.int64]:
        """Return the live rows that are not encoded."""
        rows = live_rows(self.index.live.side(self.target))
        return rows[~self.index.encoded(self.target).are_encoded(rows)]

    def _write(self, rows: NDArray[np.int64]) -> None:
        """Encode rows, part by part."""
        settings = self.settings
        if self._encoder is None:
            self._encoder = item_encoder(
                self.target, self._network, settings.limits, self.regions, exif=False
            )
        self.progress.start(len(rows), _UNITS[self.target])
        a_part = ceil(settings.part_items / settings.batch_size)
        row_of: dict[str, int] = {}
        # One stream for all parts: its threads encode the next one while this one is written.
        encoded = encoded_batches(
            self._encoder,
            self._batches(rows, row_of),
            settings.readers,
            self.seconds,
            self.progress,
        )
        with closing(encoded) as stream:
            while (first := next(stream, None)) is not None:
                self._write_part(chain([first], islice(stream, a_part - 1)), row_of)
        self._record_skipped()

    def _write_part(self, batches: Iterator[EncodedItems], row_of: dict[str, int]) -> None:
        folders = part_folders(self.index.path, self.target)
        number = 1 + int(folders[-1].name) if folders else 0
        shard = write_shard(self._folder / f"{number:06d}", self._form, batches, self.seconds)
        for item_id, reason in shard.left_out:
            row = row_of[item_id]
            self.skipped[row] = SkippedRow(row, item_id, reason)
        self._record_skipped()
        # Only batches that are encoded ahead are still to be written.
        for item_id in list(islice(row_of, max(0, len(row_of) - self._most_ahead))):
            del row_of[item_id]

    @property
    def _most_ahead(self) -> int:
        callers = 1 if self._encoder is None else self._encoder.callers
        return (2 + max(BATCHES_AHEAD, callers)) * self.settings.batch_size

    def _record_skipped(self) -> None:
        """Write down which items are skipped, for those who look at the upgrade."""
        skipped = sorted(self.skipped.values())
        if skipped != self._recorded:
            write_json(self._folder / SKIPPED_ROWS, [list(each) for each in skipped])
            self._recorded = skipped

    def _batches(
        self, rows: NDArray[np.int64], row_of: dict[str, int]
    ) -> Generator[list[NumberedItem]]:
        """Read the items of some rows batch by batch, without those deleted meanwhile."""
        size, root = self.settings.batch_size, self.index.path
        for start in range(0, len(rows), size):
            live = self.index.live.side(self.target)
            batch = rows[start : start + size]
            if live.changes is not None and live.changes.live is not None:
                batch = batch[live.changes.live.mask[batch]]
            numbered: list[NumberedItem] = []
            for item in _items(live, batch):
                source = source_of(root, item, self.target)
                row_of[item.id] = item.row
                if source is None:
                    self.skipped[item.row] = SkippedRow(item.row, item.id, _NO_SOURCE)
                    self.progress.advance()
                else:
                    numbered.append((item.row, source))
            if numbered:
                yield numbered


def _items(live: LiveCollection, rows: NDArray[np.int64]) -> Sequence[StoredItem]:
    return live.items.by_rows(rows.tolist()) if len(rows) else []
