"""A training split that is streamed from tars: its tars, and its photos read sequentially."""

from __future__ import annotations

import hashlib
import json
import logging
import os
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import NamedTuple

from aladin_network.errors import DataError
from aladin_network.photos.decoding import DEFAULT_LIMITS
from aladin_network.photos.files import PhotoFile
from aladin_network.types import Progress
from aladin_training.data import Record
from aladin_training.data.fields import readable
from aladin_training.data.records import is_strict
from aladin_training.streaming.shards import ShardCount, TarShard, count_shards, find_shards

logger = logging.getLogger(__name__)

# Subfolder of the folder of all caches.
_COUNTS = "shards"


@dataclass(frozen=True)
class TarStream:
    """Tars in reading order, each with the number of photos expected in it."""

    shards: tuple[TarShard, ...]
    counts: tuple[ShardCount, ...]

    @property
    def photos(self) -> int:
        """Number of photos in all shards."""
        return sum(count.photos for count in self.counts)

    @property
    def digest(self) -> str:
        """Digest of what determines the batches: names, split and counts."""
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
        """Read all captions without the photos."""
        for shard in self.shards:
            for record in shard.records():
                yield from record.captions


def open_stream(source: Path, split: str | None, cache: Path, progress: Progress) -> TarStream:
    """Find the tars of a source and count their photos."""
    shards = find_shards(source, split)
    counts = count_shards(shards, cache / _COUNTS, progress)
    stream = TarStream(tuple(shards), tuple(counts))
    if not stream.photos:
        of_split = "" if split is None else f" of split {split!r}"
        raise DataError(source, None, f"holds no photo{of_split} with a caption")
    without = sum(count.without_captions or 0 for count in counts)
    if without > stream.photos or (without and is_strict()):
        of = f"{without} of {without + stream.photos} photos have no caption"
        raise DataError(source, None, of if is_strict() else f"{of}, more than half")
    if without:
        logger.warning("%s: skipped %d photos without a caption", source, without)
    return stream


class Sample(NamedTuple):
    """A photo of a stream with captions; samples with equal ids are the same photo."""

    id: str
    captions: tuple[str, ...]
    photo: PhotoFile


class ReadSample(NamedTuple):
    """The photo at one position, or None if there is none; its bytes if they are wanted."""

    sample: Sample | None
    content: bytes | None


def read_samples(
    stream: TarStream, first: int, wants: Callable[[int], bool]
) -> Iterator[ReadSample]:
    """Read a stream from its photo `first` on; `wants` chooses by number whose bytes are read."""
    start = 0
    for shard, count in zip(stream.shards, stream.counts, strict=True):
        if first < start + count.photos:
            passed = max(0, first - start)
            yield from _read_shard(shard, count, passed, lambda n, start=start: wants(start + n))
        start += count.photos


def _read_shard(
    shard: TarShard, count: ShardCount, passed: int, wants: Callable[[int], bool]
) -> Iterator[ReadSample]:
    """Read a tar's photos from a given one on: as many as were counted, whatever it holds now."""
    records = shard.records()
    if count.without_captions is not None:
        records = (record for record in records if record.captions)
    found = missing = 0
    with readable(shard.path), shard.path.open("rb") as file:
        for found, record in enumerate(islice(records, count.photos), start=1):
            missing += not record.captions
            if found > passed:
                yield _read_sample(record, file.fileno(), wants(found - 1))
    missing += count.photos - found
    if missing:
        logger.warning(
            "%s: %d of the %d photos that were counted have no caption, or are missing; others "
            "replace them",
            shard.path,
            missing,
            count.photos,
        )
    elif next(records, None) is not None:
        logger.warning(
            "%s: more than the %d photos that were counted; the rest are skipped",
            shard.path,
            count.photos,
        )
    for _ in range(max(found, passed), count.photos):
        yield ReadSample(None, None)


def _read_sample(record: Record, tar: int, wanted: bool) -> ReadSample:
    if not record.captions:
        return ReadSample(None, None)
    photo, content = record.photo, None
    # A photo that is too large to be decoded is left to the decoder, which reports it.
    if wanted and photo.length is not None and photo.length <= DEFAULT_LIMITS.max_bytes:
        content = os.pread(tar, photo.length, photo.offset)
    return ReadSample(Sample(record.id, record.captions, photo), content)
