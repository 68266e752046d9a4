"""The photos of a stream with their captions, read front to back."""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Iterator
from itertools import islice
from typing import NamedTuple

from aladin.errors import DataError
from aladin.images import DEFAULT_LIMITS
from aladin.photo_file import PhotoFile
from training.data import Record
from training.streaming.shards import Shard, ShardCount
from training.streaming.tar_stream import TarStream

logger = logging.getLogger(__name__)


class Sample(NamedTuple):
    """A photo of a stream.

    Attributes:
        id: of the photo; two of one id are the same photo.
        captions: at least one.
        photo: where its bytes are.
    """

    id: str
    captions: tuple[str, ...]
    photo: PhotoFile


class ReadSample(NamedTuple):
    """What was read at one place of a stream.

    Attributes:
        sample: None where a photo was counted that has no caption, or is not there.
        content: the photo's bytes, still encoded, if they are wanted.
    """

    sample: Sample | None
    content: bytes | None


def read_samples(
    stream: TarStream, first: int, wants: Callable[[int], bool]
) -> Iterator[ReadSample]:
    """Read a stream from a photo on; the tars before it are not opened.

    Args:
        stream: its shards are read in their order.
        first: number of the first photo to be read, counted from 0 at the first shard.
        wants: whether the bytes of a photo are wanted, by its number.

    Raises:
        DataError: a tar cannot be used, or not any more.
    """
    start = 0
    for shard, count in zip(stream.shards, stream.counts, strict=True):
        if first < start + count.photos:
            passed = max(0, first - start)
            yield from _read_shard(shard, count, passed, lambda n, start=start: wants(start + n))
        start += count.photos


def _read_shard(
    shard: Shard, count: ShardCount, passed: int, wants: Callable[[int], bool]
) -> Iterator[ReadSample]:
    """Read a tar's photos from one on: as many as were counted, whatever is there now."""
    records = shard.records()
    if count.without_captions is not None:
        records = (record for record in records if record.captions)
    found = missing = 0
    try:
        with shard.path.open("rb") as file:
            for found, record in enumerate(islice(records, count.photos), start=1):
                missing += not record.captions
                if found > passed:
                    yield _read_sample(record, file.fileno(), wants(found - 1))
    except OSError as error:
        raise DataError(shard.path, None, error.strerror or "cannot be read") from error
    missing += count.photos - found
    if missing:
        logger.warning(
            "%s: %d of the %d photos that were counted have no caption, or are not there; others "
            "are shown in their place",
            shard.path,
            missing,
            count.photos,
        )
    elif next(records, None) is not None:
        logger.warning(
            "%s: more than the %d photos that were counted; left out", shard.path, count.photos
        )
    for _ in range(max(found, passed), count.photos):
        yield ReadSample(None, None)


def _read_sample(record: Record, tar: int, wanted: bool) -> ReadSample:
    if not record.captions:
        return ReadSample(None, None)
    photo, content = record.photo, None
    # One that is too large to be decoded is left to whoever tries.
    if wanted and photo.length is not None and photo.length <= DEFAULT_LIMITS.max_bytes:
        content = os.pread(tar, photo.length, photo.offset)
    return ReadSample(Sample(record.id, record.captions, photo), content)
