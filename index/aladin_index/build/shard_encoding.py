"""Encoding of a build's shards, in this process or elsewhere.

A build plans its shards, has those that are missing encoded, and goes on from their files:

    encoding.encode(ShardWork(target="images", ...), progress, seconds)  # all shards are there now
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from itertools import islice
from math import ceil
from pathlib import Path
from typing import Protocol

from aladin_index.build.shards import ShardFormat, write_shard
from aladin_index.encode.item_encoders import RegionSource, item_encoder
from aladin_index.encode.read_ahead import NumberedItem, StageSeconds, prepared_batches
from aladin_index.encode.source_items import SourceItem
from aladin_index.settings import BuildSettings
from aladin_network.model import AladinModel
from aladin_network.types import Progress, Target


@dataclass(frozen=True, kw_only=True)
class ShardWork:
    """The remaining encoding work of one collection.

    Attributes:
        target: Collection that the work belongs to.
        form: Format of the shards' arrays.
        shards: Rows of each shard by the folder that the shard is to be written to, in order.
        items: Function that returns the items of some consecutive rows; for the thread that began
            the build.
    """

    target: Target
    form: ShardFormat
    shards: Mapping[Path, range]
    items: Callable[[range], Sequence[SourceItem]]


class ShardEncoding(Protocol):
    """Encodes the shards of a build; the files do not depend on the implementation."""

    def encode(self, work: ShardWork, progress: Progress, seconds: StageSeconds) -> None:
        """Write all shards of `work`, each atomically.

        Args:
            work: Work to be done.
            progress: Progress, advanced by the items.
            seconds: Times by stage, to which the times of this call are added; together they are
                the time that it took.

        Raises:
            OSError: If the disk is full, or cannot be written.
            ClusterError: If the nodes that encode are unavailable, or fail repeatedly.
        """
        ...


class LocalEncoding:
    """Encodes in this process: threads read and decode photos ahead of the network."""

    def __init__(
        self, network: AladinModel, settings: BuildSettings, regions: RegionSource | None = None
    ) -> None:
        """Set up encoding with `network`.

        Args:
            network: Network on its device, in evaluation mode.
            settings: Batch size, number of readers and limits of photos.
            regions: Regions of the photos, for a network that reads regions.
        """
        self._network = network
        self._settings = settings
        self._regions = regions

    def encode(self, work: ShardWork, progress: Progress, seconds: StageSeconds) -> None:
        """Write all shards of `work`, one after the other."""
        settings = self._settings
        encoder = item_encoder(
            work.target, self._network, settings.limits, self._regions, exif=settings.exif
        )
        batches = _batches(work.shards.values(), work.items, settings.batch_size)
        # One stream for all shards: its threads prepare the next one while this one is written.
        with closing(prepared_batches(encoder, batches, settings.readers, seconds)) as stream:
            for folder, rows in work.shards.items():
                of_this = islice(stream, ceil(len(rows) / settings.batch_size))
                write_shard(folder, work.form, encoder, of_this, progress, seconds)


def _batches(
    shards: Iterable[range], items: Callable[[range], Sequence[SourceItem]], size: int
) -> Iterator[list[NumberedItem]]:
    """Read the items of some shards batch by batch."""
    for rows in shards:
        for start in range(rows.start, rows.stop, size):
            batch = range(start, min(start + size, rows.stop))
            yield list(zip(batch, items(batch), strict=True))
