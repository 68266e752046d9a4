"""Where a stage's batches come from, and which part of each is this process's."""

from __future__ import annotations

from collections.abc import Generator
from typing import Literal, Protocol

from training.batches import BatchPlan, Share
from training.dataset import PairDataset
from training.look_ahead import look_ahead
from training.tasks.batch import Batch

WHOLE = Share(rank=0, world=1)
# While the network works on one batch the next is being made; more would only cost memory.
BATCHES_AHEAD = 2


class BatchSource(Protocol):
    """The batches of a stage, a function of its seed and the epoch."""

    @property
    def batches_per_epoch(self) -> int:
        """Number of batches, the same in every epoch."""
        ...

    @property
    def digest(self) -> str:
        """Identify the data; a resumed run must find the same."""
        ...

    def epoch(self, number: int, start: int = 0, share: Share = WHOLE) -> Generator[Batch]:
        """Yield the batches of an epoch from one on, as an unbroken epoch would have them.

        Close it, or read it to its end, to end the threads behind it.

        Args:
            number: of the epoch, counted from 0.
            start: batches that have been seen already; nothing is decoded for them.
            share: whose photos and captions are wanted. The negatives are of the whole batch.
        """
        ...


class PlannedBatches:
    """Batches of a data set whose photos can be read in any order."""

    def __init__(
        self,
        pairs: PairDataset,
        plan: BatchPlan,
        negatives: Literal["image", "diagonal"] = "image",
    ) -> None:
        """Tie a data set and the plan of a stage together.

        Args:
            pairs: photos and captions.
            plan: which of them meet.
            negatives: see `PairDataset.batch`.
        """
        self._pairs = pairs
        self._plan = plan
        self._negatives: Literal["image", "diagonal"] = negatives

    @property
    def batches_per_epoch(self) -> int:
        """Number of batches, the same in every epoch."""
        return self._plan.batches_per_epoch

    @property
    def digest(self) -> str:
        """Identify the data; a resumed run must find the same."""
        return self._pairs.digest

    def epoch(self, number: int, start: int = 0, share: Share = WHOLE) -> Generator[Batch]:
        """Yield the batches of an epoch from one on; see `BatchSource.epoch`."""
        batches = (
            self._pairs.batch(rows, self._negatives, share)
            for rows in self._plan.epoch(number)[start:]
        )
        return look_ahead(batches, BATCHES_AHEAD)
