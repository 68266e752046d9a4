"""Searches go on when a device fails: the processor takes over, and one warning says so."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from functools import partial
from typing import TypeVar

import numpy as np
from jaxtyping import Float
from numpy.typing import NDArray
from torch import Tensor

from index.modality import Modality
from index.selection import Selection
from index.stages import FirstStage, SecondStage

T = TypeVar("T")

_LOG = logging.getLogger(__name__)


class DeviceHealth:
    """Whether a device can be used; shared by all that use it."""

    def __init__(self) -> None:
        """Begin in good health."""
        self._lock = threading.Lock()
        self._failed = False

    @property
    def is_good(self) -> bool:
        """Whether nothing has failed."""
        return not self._failed

    def fail(self, reason: object) -> None:
        """Use the device no more; the first reason is logged."""
        with self._lock:
            first, self._failed = not self._failed, True
        if first:
            _LOG.warning("searching on the processor: %s", reason)

    def guard(self, on_device: Callable[[], T], spare: Callable[[], T]) -> T:
        """Do something on the device, or on the processor once the device has failed."""
        if self.is_good:
            try:
                return on_device()
            except RuntimeError as error:  # what both FAISS and torch raise
                self.fail(error)
        return spare()


class GuardedFirstStage:
    """Searches on a device while it can, and on the processor from then on."""

    def __init__(self, on_device: FirstStage, spare: FirstStage, health: DeviceHealth) -> None:
        """Use `spare` once `health` is not good."""
        self._on_device = on_device
        self._spare = spare
        self._health = health

    def search(
        self, query: NDArray[np.float32], count: int, allowed: Selection | None = None
    ) -> NDArray[np.int64]:
        """Find near rows, see `index.stages.FirstStage`."""
        return self._health.guard(
            partial(self._on_device.search, query, count, allowed),
            partial(self._spare.search, query, count, allowed),
        )


class GuardedSecondStage:
    """Scores on a device while it can, and on the processor from then on."""

    def __init__(self, on_device: SecondStage, spare: SecondStage, health: DeviceHealth) -> None:
        """Use `spare` once `health` is not good."""
        self._on_device = on_device
        self._spare = spare
        self._health = health

    def align(
        self,
        query: Float[Tensor, "query_tokens dim"],
        modality: Modality,
        rows: NDArray[np.int64],
    ) -> NDArray[np.float32]:
        """Score items by late interaction, see `index.stages.SecondStage`."""
        return self._health.guard(
            partial(self._on_device.align, query, modality, rows),
            partial(self._spare.align, query, modality, rows),
        )

    def similarities(
        self,
        query: Float[Tensor, "query_tokens dim"],
        modality: Modality,
        rows: NDArray[np.int64],
    ) -> list[NDArray[np.float32]]:
        """Compare tokens, see `index.stages.SecondStage`."""
        return self._health.guard(
            partial(self._on_device.similarities, query, modality, rows),
            partial(self._spare.similarities, query, modality, rows),
        )
