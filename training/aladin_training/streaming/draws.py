"""Which photo of a stream is shown when: a pure function of the counts, the seed and the epoch.

The batches of a stream as samples, before anything is decoded.
"""

from __future__ import annotations

import random
from collections import deque
from collections.abc import Iterator, Sequence
from itertools import islice
from typing import NamedTuple

from aladin_network.errors import DataError
from aladin_training.parallel.distributed import BatchShare
from aladin_training.streaming.stream import ReadSample, Sample, TarStream, read_samples


def shard_order(shards: int, seed: str, epoch: int) -> list[int]:
    """Return the numbers of the shards in the order in which an epoch reads them."""
    return random.Random(f"{seed}:{epoch}:shards").sample(range(shards), shards)


class ShuffleBuffer:
    """The shuffle buffer, one lane for each place of a batch.

    Photos are let in a row at a time, one into each lane at random, and a batch takes one photo
    at random out of every lane. So it is known of a photo, when it is read, at which place of
    some batch it will stand, and that only the process whose place that is needs its bytes.

    Attributes:
        batch_size: photos a batch.
        entered: photos that must have been read for the next draw, from the first one on.
    """

    def __init__(self, photos: int, batch_size: int, shuffle: int, seed: str, epoch: int) -> None:
        """Begin an epoch.

        Args:
            photos: of the epoch.
            batch_size: at most `photos`.
            shuffle: photos that wait in all lanes together, at least two batches: what is read
                of the second stands in for what the first lacks.
            seed: any text.
            epoch: counted from 0.
        """
        self.batch_size = batch_size
        self.entered = 0
        self._photos = photos
        self._lanes: list[list[int]] = [[] for _ in range(batch_size)]
        self._place_of: dict[int, int] = {}
        self._generator = random.Random(f"{seed}:{epoch}")
        for _ in range(max(2, shuffle // batch_size)):
            self._let_in()

    def draw(self) -> list[int]:
        """Return the photos of the next batch by the number in which they are read."""
        batch: list[int] = []
        for lane in self._lanes:
            number = self._generator.randrange(len(lane))
            lane[number], lane[-1] = lane[-1], lane[number]
            batch.append(lane.pop())
            del self._place_of[batch[-1]]
        self._let_in()
        return batch

    def place_of(self, photo: int) -> int | None:
        """Return the place in a batch of a photo that waits to be drawn; None: it does not."""
        return self._place_of.get(photo)

    @property
    def first_waiting(self) -> int:
        """The first photo that waits to be drawn; `entered` where none does."""
        return min(self._place_of, default=self.entered)

    def _let_in(self) -> None:
        row = range(self.entered, min(self._photos, self.entered + self.batch_size))
        places = self._generator.sample(range(self.batch_size), len(row))
        for photo, place in zip(row, places, strict=True):
            self._lanes[place].append(photo)
            self._place_of[photo] = place
        self.entered = row.stop


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
    stream: TarStream, lanes: ShuffleBuffer, wanted: range, share: BatchShare
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
