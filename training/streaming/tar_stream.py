"""Photos of one split in any number of tars."""

from __future__ import annotations

import hashlib
import json
import logging
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from aladin.errors import DataError
from aladin.progress import Progress
from training.streaming.counts import count_shards
from training.streaming.shards import Shard, ShardCount, find_shards

logger = logging.getLogger(__name__)

# Below the folder of all caches.
_COUNTS = "shards"


@dataclass(frozen=True)
class TarStream:
    """Tars in the order in which they are read, each with the number of its photos.

    Attributes:
        shards: the tars.
        counts: what each of them is taken to hold.
    """

    shards: tuple[Shard, ...]
    counts: tuple[ShardCount, ...]

    @property
    def photos(self) -> int:
        """Number of photos in all shards."""
        return sum(count.photos for count in self.counts)

    @property
    def digest(self) -> str:
        """Identify what shapes the batches: names, split and counts."""
        shards = [(each.name, each.split) for each in self.shards]
        photos = [count.photos for count in self.counts]
        return hashlib.sha256(json.dumps([shards, photos]).encode()).hexdigest()

    def reordered(self, numbers: Sequence[int]) -> TarStream:
        """Return the same shards in another order."""
        return TarStream(
            tuple(self.shards[number] for number in numbers),
            tuple(self.counts[number] for number in numbers),
        )

    def captions(self) -> Iterator[str]:
        """Read all captions, and nothing of the photos."""
        for shard in self.shards:
            for record in shard.records():
                yield from record.captions


def open_stream(source: Path, split: str | None, cache: Path, progress: Progress) -> TarStream:
    """Find the tars of a source and count their photos.

    Args:
        source: a tar, a pattern of tars or a folder of them.
        split: of the photos; None: all.
        cache: folder of all caches; remembers counts that took reading.
        progress: told of shards.

    Raises:
        DataError: there is no tar, one is damaged, or no photo of the split has a caption.
    """
    shards = find_shards(source, split)
    counts = count_shards(shards, cache / _COUNTS, progress)
    stream = TarStream(tuple(shards), tuple(counts))
    if not stream.photos:
        of_split = "" if split is None else f" of split {split!r}"
        raise DataError(source, None, f"holds no photo{of_split} with a caption")
    without = sum(count.without_captions or 0 for count in counts)
    if without:
        logger.warning("%s: %d photos have no caption and are left out", source, without)
    return stream
