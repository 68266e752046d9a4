"""FAISS as its wheel for GPUs has it, for building: what is on a card computes on the processor."""

from collections.abc import Callable
from functools import partialmethod
from typing import Any

from aladin_index.ann import faiss


class FakeGpuFaiss:
    """FAISS with cards; all that has nothing to do with them is FAISS's own.

    Attributes:
        on_card: The indexes that were made on a card, in order.
    """

    def __init__(
        self, cards: int = 1, disguise: Callable[[Any], Any] = lambda index: index
    ) -> None:
        """Have some cards; `disguise` replaces what is on them, before it is used."""
        self._cards, self._disguise = cards, disguise
        self.on_card: list[Any] = []

    def __getattr__(self, name: str) -> Any:
        return getattr(faiss, name)

    class StandardGpuResources:
        """Working memory."""

    class GpuIndexFlatConfig:
        """Options: full precision, on the first card."""

    def get_num_gpus(self) -> int:
        return self._cards

    def _flat(self, metric: int, resources: object, dim: int, options: object) -> Any:
        assert isinstance(resources, self.StandardGpuResources)
        assert isinstance(options, self.GpuIndexFlatConfig)
        self.on_card.append(self._disguise(faiss.IndexFlat(dim, metric)))
        return self.on_card[-1]

    GpuIndexFlatIP = partialmethod(_flat, faiss.METRIC_INNER_PRODUCT)
    GpuIndexFlatL2 = partialmethod(_flat, faiss.METRIC_L2)
