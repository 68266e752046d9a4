"""Exhaustive search by what can score every item: interface of a GPU that holds a collection."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple, Protocol

import numpy as np
from jaxtyping import Float
from numpy.typing import NDArray

from aladin_index.items.selection import Selection
from aladin_index.search.collection import ExhaustiveQuery
from aladin_network.types import Modality


class ScanQuery(NamedTuple):
    """What all items are scored by.

    Attributes:
        query: The query.
        vector: (width,) float32; its inner products with stored vectors are the cosines.
        tokens: (query_tokens, d_align) float32.
        modality: What the tokens are compared as: words or regions.
        bias_count: How often an item's bias counts in its alignment score; 0 without correction.
    """

    query: ExhaustiveQuery
    vector: NDArray[np.float32]
    tokens: Float[np.ndarray, "query_tokens dim"]
    modality: Modality
    bias_count: int

    @property
    def wanted(self) -> int:
        """Number of the best items by the fused score that have to be found."""
        return self.query.first.wanted

    @property
    def nearest(self) -> int:
        """Number of the nearest items that have to be found besides."""
        return self.query.first.candidates


class Scanned(NamedTuple):
    """Items among which are the best for a query, by ascending row.

    Attributes:
        rows: (found,) int64.
        nearer: Counts the items that are nearer to the query than each of some items, given by
            their rows, -1 for items that were not scanned, and their cosines.
    """

    rows: NDArray[np.int64]
    nearer: Callable[[NDArray[np.int64], NDArray[np.float32]], NDArray[np.int64]]


class ItemScan(Protocol):
    """Scores every item of a collection; thread-safe."""

    def best(
        self, queries: Sequence[ScanQuery], allowed: Selection | None = None
    ) -> list[Scanned] | None:
        """Find the best items of each query, or None to have them found by other means."""
        ...
