"""Which photo of a stream is shown when: a pure function of the counts, the seed and the epoch."""

from __future__ import annotations

import random


def shard_order(shards: int, seed: str, epoch: int) -> list[int]:
    """Return the numbers of the shards in the order in which an epoch reads them."""
    return random.Random(f"{seed}:{epoch}:shards").sample(range(shards), shards)


class Lanes:
    """The shuffle buffer, one lane for each place of a batch.

    The n-th photo that is read waits in lane ``n % batch_size``, and a batch takes one photo at
    random out of every lane. So it is known of a photo, when it is read, at which place of some
    batch it will stand, and that only the process whose place that is needs its bytes.

    Attributes:
        batch_size: photos a batch.
        entered: photos that must have been read for the batches drawn so far.
    """

    def __init__(self, photos: int, batch_size: int, shuffle: int, seed: str, epoch: int) -> None:
        """Begin an epoch.

        Args:
            photos: of the epoch.
            batch_size: at most `photos`.
            shuffle: photos that wait in all lanes together; as many as a batch has do nothing.
            seed: any text.
            epoch: counted from 0.
        """
        self.batch_size = batch_size
        self._photos = photos
        self._lanes: list[list[int]] = [[] for _ in range(batch_size)]
        self._generator = random.Random(f"{seed}:{epoch}")
        self.entered = 0
        # The draw of a batch lets one more row of photos in first.
        for _ in range(shuffle // batch_size - 1):
            self._let_in()

    def draw(self) -> list[int]:
        """Return the photos of the next batch by the number in which they are read."""
        self._let_in()
        return [self._take(lane) for lane in self._lanes]

    @property
    def waiting(self) -> set[int]:
        """The photos that have been read and are still to be drawn."""
        return {photo for lane in self._lanes for photo in lane}

    def _let_in(self) -> None:
        last = min(self._photos, self.entered + len(self._lanes))
        for photo, lane in zip(range(self.entered, last), self._lanes, strict=False):
            lane.append(photo)
        self.entered = last

    def _take(self, lane: list[int]) -> int:
        # Of all ways to draw, random() alone is promised never to change.
        number = int(self._generator.random() * len(lane))
        lane[number], lane[-1] = lane[-1], lane[number]
        return lane.pop()
