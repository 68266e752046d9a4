"""A collection of a generation as it was built: its files, and the order of its items."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from pyroaring import BitMap

from aladin_index.ann.ann_index import EXACT_UP_TO, AnnIndex
from aladin_index.ann.exact_scan import ExactScan
from aladin_index.ann.first_stage import (
    FirstStage,
    exact_search,
    retrieve_all,
    worth_copying,
)
from aladin_index.format.manifest import CollectionEntry
from aladin_index.items.selection import Selection, bitmap_of
from aladin_index.items.store import ItemStore
from aladin_index.learned.stage import LearnedFirstStage
from aladin_index.tokens.lazy_bounds import LazyBounds
from aladin_index.tokens.maxsim import SecondStage
from aladin_index.tokens.store import TokenStore
from aladin_network.types import Target


@dataclass(frozen=True, kw_only=True)
class StoredCollection:
    """The images or the texts of an open index.

    Attributes:
        target: Target of the collection: images or texts.
        entry: Manifest entry of the collection.
        ann: Index of the first stage, as stored.
        first_stage: Search implementation: the ANN itself, or a device implementation.
        second_stage: Re-ranking implementation.
        embeddings: (items, d_match) float32, memory-mapped.
        tokens: Tokens of the second stage.
        items: IDs, texts and metadata.
        scan: Exact search in place of a first stage that compares with every vector, or None.
        bounds: Bounds of alignment scores, or None if the second stage is not that of the CPU.
        learned: First stage that was fitted to the alignment, or None if there is none.
    """

    target: Target
    entry: CollectionEntry
    ann: AnnIndex
    first_stage: FirstStage
    second_stage: SecondStage
    embeddings: NDArray[np.float32]
    tokens: TokenStore
    items: ItemStore
    scan: ExactScan | None = None
    bounds: LazyBounds | None = None
    learned: LearnedFirstStage | None = None

    def candidates(
        self, query: NDArray[np.float32], count: int, allowed: Selection | None = None
    ) -> tuple[NDArray[np.int64], NDArray[np.float32]]:
        """Find the items whose embeddings are nearest to the query's.

        Args:
            query: (d_match,), L2-normalised.
            count: Number of candidates wanted; as many are found if enough are allowed.
            allowed: Rows to choose from, or None for all.

        Returns:
            Rows, best first, those of equal score in ascending order, and their cosines, which
            are exact whatever the ANN keeps of a vector.
        """
        return self.candidates_of_all(query[None], count, allowed)[0]

    def candidates_of_all(
        self, queries: NDArray[np.float32], count: int, allowed: Selection | None = None
    ) -> list[tuple[NDArray[np.int64], NDArray[np.float32]]]:
        """Find the nearest items of several queries, (queries, d_match), as `candidates` does."""
        total = self.entry.count if allowed is None else allowed.count
        # A device has its own first stage, and few rows are compared one by one.
        scan = self.scan if self.first_stage is self.ann and count < total else None
        is_sparse = allowed is not None and worth_copying(allowed, self.entry.count)
        if scan is not None and not is_sparse and scan.is_ready():
            return [scan.search(query, count, allowed) for query in queries]
        # A filter that leaves few rows is answered exactly, at less cost than a widened search.
        few = allowed is not None and (total <= EXACT_UP_TO or not self.ann.takes_selections)
        if few or count >= total:
            return [exact_search(self.embeddings, query, count, allowed) for query in queries]
        return retrieve_all(self.first_stage, self.embeddings, queries, count, allowed)

    def order(
        self,
        query: NDArray[np.float32],
        count: int,
        num_candidates: int,
        allowed: Selection | None = None,
        head: tuple[NDArray[np.int64], NDArray[np.float32]] | None = None,
    ) -> tuple[NDArray[np.int64], NDArray[np.float32]]:
        """Order the first `count` items; a longer order always begins with a shorter one.

        The ANN finds the first `num_candidates`, always asked for just as many, so that pages
        neither repeat an item nor skip one. What lies beyond is ordered exactly.

        Args:
            query: (d_match,), L2-normalised.
            count: Number of requested items.
            num_candidates: Number of candidates of the first stage.
            allowed: Rows to choose from, or None for all.
            head: The candidates, if they have been found.

        Returns:
            Rows and cosines, see `candidates`.
        """
        rows, scores = head or self.candidates(query, num_candidates, allowed)
        if count <= len(rows) or len(rows) < num_candidates:
            return rows[:count], scores[:count]
        size = self.entry.count
        every = BitMap(range(size)) if allowed is None else allowed.bitmap
        rest = Selection(every - bitmap_of(rows), size)
        tail, tail_scores = exact_search(self.embeddings, query, count - len(rows), rest)
        return np.concatenate([rows, tail]), np.concatenate([scores, tail_scores])
