"""The order of a stream's photos, and the samples of its batches before anything is decoded.

The order is a pure function of the counts, the seed and the epoch.
"""

from __future__ import annotations

import random
from collections import deque
from collections.abc import Iterator, Sequence
from itertools import islice
from typing import NamedTuple

from aladin_network.errors import DataError
from aladin_training.parallel.distributed import BatchShare
from aladin_training.streaming.tar_stream import ReadSample, Sample, TarStream, read_samples

# The photos read last replace missing ones: two batches of them, so that half of them are in no
# batch at the same time, or more if batches are small and much may be missing.
LEAST_SPARES = 256


def shard_order(shards: int, seed: str, epoch: int) -> list[int]:
    """Return the order in which an epoch reads the shards, as their numbers."""
    return random.Random(f"{seed}:{epoch}:shards").sample(range(shards), shards)


class ShuffleBuffer:
    """The shuffle buffer, with one queue for each position in a batch.

    Photos enter a row at a time, one into each queue at random, and a batch takes one random photo
    from every queue. So the position of a photo in its batch is known when it is read, and only
    the process with that position needs the photo's bytes.

    Attributes:
        batch_size: Photos in a batch.
        entered: Number of photos, from the first one on, that must be read before the next draw.
    """

    def __init__(self, photos: int, batch_size: int, shuffle: int, seed: str, epoch: int) -> None:
        """Start an epoch of at least as many photos as a batch.

        Photos of all queues together are at least two batches: those read for the second replace
        what is missing in the first.
        """
        self.batch_size = batch_size
        self.entered = 0
        self._photos = photos
        self._queues: list[list[int]] = [[] for _ in range(batch_size)]
        self._place_of: dict[int, int] = {}
        self._generator = random.Random(f"{seed}:{epoch}")
        for _ in range(max(2, shuffle // batch_size)):
            self._let_in()

    def draw(self) -> list[int]:
        """Return the photos of the next batch by their position in the stream."""
        batch: list[int] = []
        for queue in self._queues:
            number = self._generator.randrange(len(queue))
            queue[number], queue[-1] = queue[-1], queue[number]
            batch.append(queue.pop())
            del self._place_of[batch[-1]]
        self._let_in()
        return batch

    def place_of(self, photo: int) -> int | None:
        """Return the position in a batch of a waiting photo, or None if it does not wait."""
        return self._place_of.get(photo)

    @property
    def first_waiting(self) -> int:
        """First photo that waits to be drawn, or `entered` if none does."""
        return min(self._place_of, default=self.entered)

    def _let_in(self) -> None:
        row = range(self.entered, min(self._photos, self.entered + self.batch_size))
        places = self._generator.sample(range(self.batch_size), len(row))
        for photo, place in zip(row, places, strict=True):
            self._queues[place].append(photo)
            self._place_of[photo] = place
        self.entered = row.stop


class DrawnBatch(NamedTuple):
    """The samples of a batch.

    Attributes:
        samples: Samples of the whole batch.
        contents: Bytes of the photos of this process's share, in its order.
        spares: Samples with other ids, as replacements for damaged photos.
    """

    samples: list[Sample]
    contents: list[bytes | None]
    spares: list[Sample]


def draw_batches(
    stream: TarStream, buffer: ShuffleBuffer, wanted: range, share: BatchShare
) -> Iterator[DrawnBatch]:
    """Yield some of the batches of an epoch.

    Only what these batches need is read: tars that were used up before are not opened, and photos
    of other processes, or of earlier batches, are not read.
    """
    own = share.photos(buffer.batch_size)
    for _ in range(wanted.start):
        buffer.draw()

    def wants(photo: int) -> bool:
        place = buffer.place_of(photo)
        return place is not None and own.start <= place < own.stop

    spares = max(LEAST_SPARES, 2 * buffer.batch_size)
    last_read: deque[Sample | None] = deque(maxlen=spares)
    position = max(0, min(buffer.first_waiting, buffer.entered - spares))
    reading = enumerate(read_samples(stream, position, wants), start=position)
    held: dict[int, ReadSample] = {}
    for _ in wanted:
        for photo, read in islice(reading, buffer.entered - position):
            last_read.append(read.sample)
            if buffer.place_of(photo) is not None:
                held[photo] = read
        position = buffer.entered
        yield _with_spares([held.pop(photo) for photo in buffer.draw()], last_read, own, stream)


def _with_spares(
    batch: Sequence[ReadSample], last_read: Sequence[Sample | None], own: slice, stream: TarStream
) -> DrawnBatch:
    """Replace missing photos by spares; every process chooses the same ones."""
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
