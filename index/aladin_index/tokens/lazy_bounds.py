"""Bounds of a collection's alignment scores: those on disk, or computed when first needed."""

from __future__ import annotations

import threading

import numpy as np
from jaxtyping import Float
from numpy.typing import NDArray

from aladin_index.tokens.bounds import SAMPLE, TokenBounds, spread_sample
from aladin_index.tokens.store import TokenStore
from aladin_network.types import Modality

# Candidates from which on bounds save time, if they are at hand; fewer are scored as soon without.
LEAST_BOUNDED = 400
# Share of the rows from which on the bounds of all are computed; fewer are scored sooner.
WORTH_BOUNDING = 0.1


class LazyBounds:
    """Bounds that are at hand, or computed when they are first needed; thread-safe."""

    def __init__(
        self,
        tokens: TokenStore,
        other: TokenStore | None,
        stored: TokenBounds | None = None,
        *,
        are_texts: bool,
    ) -> None:
        """Bound the scores of `tokens`, whose queries resemble `other`."""
        self._tokens = tokens
        self._other = other
        self._are_texts = are_texts
        self._lock = threading.Lock()
        self._bounds = stored

    def get(self) -> TokenBounds:
        """Return the bounds; where there are none, the first call computes them, others wait."""
        with self._lock:
            if self._bounds is None:
                sample = None if self._other is None else query_sample(self._other)
                self._bounds = TokenBounds.build(self._tokens, sample, are_texts=self._are_texts)
            return self._bounds

    def of_candidates(
        self,
        query: Float[np.ndarray, "query_tokens dim"],
        modality: Modality,
        rows: NDArray[np.int64],
    ) -> NDArray[np.float32] | None:
        """Return bounds of the scores of candidates, or None if they have not been computed."""
        return None if self._bounds is None else self._bounds.upper(query, modality, rows)


def query_sample(store: TokenStore) -> NDArray[np.float32] | None:
    """Return tokens of a collection as examples of queries of the other one; None without any."""
    sample = spread_sample(store, SAMPLE)
    return sample if len(sample) else None
