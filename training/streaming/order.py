"""Which photo of a stream is shown when: a pure function of the counts, the seed and the epoch."""

from __future__ import annotations

import random


def shard_order(shards: int, seed: str, epoch: int) -> list[int]:
    """Return the numbers of the shards in the order in which an epoch reads them."""
    return random.Random(f"{seed}:{epoch}:shards").sample(range(shards), shards)


class Lanes:
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
