"""The batches of a stream as samples, before anything is decoded."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Sequence
from itertools import islice
from typing import NamedTuple

from aladin.errors import DataError
from training.batches import Share
from training.streaming.order import Lanes
from training.streaming.samples import ReadSample, Sample, read_samples
from training.streaming.tar_stream import TarStream

# What was read last stands in for what is missing: as many as two batches, so that half of them
# are in no batch at the same time, or more where batches are small and much may be missing.
LEAST_SPARES = 256


class DrawnBatch(NamedTuple):
    """The samples of a batch.

    Attributes:
        samples: of the whole batch.
        contents: bytes of the own share's photos, in its order.
        spares: samples with other ids, for photos that turn out to be damaged.
    """

    samples: list[Sample]
    contents: list[bytes | None]
    spares: list[Sample]


def draw_batches(
    stream: TarStream, lanes: Lanes, wanted: range, share: Share
) -> Iterator[DrawnBatch]:
    """Yield some of the batches of an epoch.

    Only what these batches need is read: tars that were used up before are not opened, and the
    bytes of photos that others show, or that have been shown, are left where they are.

    Args:
        stream: in the order of the epoch.
        lanes: of the epoch, nothing drawn yet.
        wanted: numbers of the batches, one after the other.
        share: whose bytes are wanted.

    Raises:
        DataError: a tar cannot be used, or there are too few photos for a batch.
    """
    own = share.photos(lanes.batch_size)
    for _ in range(wanted.start):
        lanes.draw()

    def wants(photo: int) -> bool:
        place = lanes.place_of(photo)
        return place is not None and own.start <= place < own.stop

    spares = max(LEAST_SPARES, 2 * lanes.batch_size)
    last_read: deque[Sample | None] = deque(maxlen=spares)
    position = max(0, min(lanes.first_waiting, lanes.entered - spares))
    reading = enumerate(read_samples(stream, position, wants), start=position)
    held: dict[int, ReadSample] = {}
    for _ in wanted:
        for photo, read in islice(reading, lanes.entered - position):
            last_read.append(read.sample)
            if lanes.place_of(photo) is not None:
                held[photo] = read
        position = lanes.entered
        yield _with_spares([held.pop(photo) for photo in lanes.draw()], last_read, own, stream)


def _with_spares(
    batch: Sequence[ReadSample], last_read: Sequence[Sample | None], own: slice, stream: TarStream
) -> DrawnBatch:
    """Put spares where photos are missing; every process comes to the same ones."""
    shown = {each.sample.id for each in batch if each.sample is not None}
    others = {each.id: each for each in last_read if each is not None and each.id not in shown}
    spares = list(others.values())
    samples: list[Sample] = []
    for sample, _ in batch:
        if sample is None:
            if not spares:
                root = stream.shards[0].root
                reason = "too many photos were counted that have no caption or are not there"
                raise DataError(root, None, f"{reason}; without *_stats.json tars are counted anew")
            sample = spares.pop()
        samples.append(sample)
    return DrawnBatch(samples, [each.content for each in batch[own]], spares)
