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
from training.streaming.shards import Shard
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
        sample: None where a tar holds fewer photos than had been counted.
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
        if first < start + count:
            passed = max(0, first - start)
            yield from _read_shard(shard, count, passed, lambda n, start=start: wants(start + n))
        start += count


def _read_shard(
    shard: Shard, count: int, passed: int, wants: Callable[[int], bool]
) -> Iterator[ReadSample]:
    """Read a tar's photos from one on: as many as were counted, whatever is there now."""
    usable = (record for record in shard.records() if record.captions)
    found = 0
    try:
        with shard.path.open("rb") as file:
            for found, record in enumerate(islice(usable, count), start=1):
                if found <= passed:
                    continue
                photo, content = record.photo, None
                # One that is too large to be decoded is left to whoever tries.
                if wants(found - 1) and (photo.length or 0) <= DEFAULT_LIMITS.max_bytes:
                    content = os.pread(file.fileno(), photo.length or 0, photo.offset)
                yield ReadSample(Sample(record.id, record.captions, photo), content)
    except OSError as error:
        raise DataError(shard.path, None, error.strerror or "cannot be read") from error
    if found < count:
        logger.warning(
            "%s: %d photos with captions, %d were counted; others are shown in place of the rest",
            shard.path,
            found,
            count,
        )
    elif next(usable, None) is not None:
        logger.warning("%s: more than the %d photos that were counted; left out", shard.path, count)
    for _ in range(max(found, passed), count):
        yield ReadSample(None, None)
