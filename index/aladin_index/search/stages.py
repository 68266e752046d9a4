"""What does the two stages' work: the seam at which a device can take a side over."""

from __future__ import annotations

from typing import Protocol

import numpy as np
from jaxtyping import Float
from numpy.typing import NDArray
from torch import Tensor

from aladin_index.items.selection import Selection
from aladin_index.tokens.alignment import alignment_with_candidates, token_similarities
from aladin_index.tokens.store import TokenStore
from aladin_network.types import Modality


class FirstStage(Protocol):
    """Finds candidates; safe to use from any number of threads."""

    def search(
        self, query: NDArray[np.float32], count: int, allowed: Selection | None = None
    ) -> NDArray[np.int64]:
        """Find near rows.

        Args:
            query: (dim,), L2-normalised.
            count: rows wanted.
            allowed: rows to choose from; None: all.

        Returns:
            Rows in no order to rely on: at least `count` if the engine finds so many, and more
            where it cannot tell which of them are the nearest.
        """
        ...


class SecondStage(Protocol):
    """Scores candidates; safe to use from any number of threads."""

    def align(
        self,
        query: Float[Tensor, "query_tokens dim"],
        modality: Modality,
        rows: NDArray[np.int64],
    ) -> NDArray[np.float32]:
        """Score items by late interaction, see
        `aladin_index.tokens.alignment.alignment_with_candidates`."""
        ...

    def similarities(
        self,
        query: Float[Tensor, "query_tokens dim"],
        modality: Modality,
        rows: NDArray[np.int64],
    ) -> list[NDArray[np.float32]]:
        """Compare every token of a query with every token of some items.

        Args:
            query: see `align`.
            modality: see `align`.
            rows: see `align`.

        Returns:
            For each item (query_tokens, item_tokens) float32: the very numbers of which `align`
            takes the best and sums them up, to its last digits.
        """
        ...


class TokenAlignment:
    """The second stage on the processor, on tokens as they are stored."""

    def __init__(self, tokens: TokenStore) -> None:
        """Score the items of `tokens`."""
        self._tokens = tokens

    def align(
        self,
        query: Float[Tensor, "query_tokens dim"],
        modality: Modality,
        rows: NDArray[np.int64],
    ) -> NDArray[np.float32]:
        """Score items, see `SecondStage`."""
        return alignment_with_candidates(query, modality, self._tokens, rows)

    def similarities(
        self,
        query: Float[Tensor, "query_tokens dim"],
        modality: Modality,
        rows: NDArray[np.int64],
    ) -> list[NDArray[np.float32]]:
        """Compare tokens, see `SecondStage`."""
        return token_similarities(query, modality, self._tokens, rows)


def with_margin(count: int) -> int:
    """Return how many rows to ask of half-precision vectors for `count` to be among them.

    They change the order only where cosines agree to 0.001; re-scoring with exact cosines then
    finds the right ones.
    """
    return count + count // 10 + 16
