"""One collection of an open generation, images or texts, and its first stage."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from aladin_index.ann.ann_index import EXACT_UP_TO, AnnIndex
from aladin_index.ann.retrieval import FirstStage, exact_search, retrieve
from aladin_index.format.layout import ANN, EMBEDDINGS, ITEMS
from aladin_index.format.manifest import CollectionEntry
from aladin_index.format.npy import map_npy
from aladin_index.items.selection import Selection
from aladin_index.items.store import ItemStore
from aladin_index.tokens.alignment import SecondStage, TokenAlignment
from aladin_index.tokens.store import TokenStore
from aladin_network.errors import IndexCorruptError
from aladin_network.types import Target


@dataclass(frozen=True, kw_only=True)
class StoredCollection:
    """The images or the texts of an open index.

    Attributes:
        target: Target of the collection: images or texts.
        entry: Manifest entry of the collection.
        ann: the first stage's index, as it is stored.
        first_stage: Search implementation: the ANN itself, or a device implementation.
        second_stage: Re-ranking implementation.
        embeddings: (items, d_match) float32, memory-mapped.
        tokens: Tokens of the second stage.
        items: ids, texts and metadata.
    """

    target: Target
    entry: CollectionEntry
    ann: AnnIndex
    first_stage: FirstStage
    second_stage: SecondStage
    embeddings: NDArray[np.float32]
    tokens: TokenStore
    items: ItemStore

    def candidates(
        self, query: NDArray[np.float32], count: int, allowed: Selection | None = None
    ) -> tuple[NDArray[np.int64], NDArray[np.float32]]:
        """Find the items whose embeddings are nearest to the query's.

        Args:
            query: (d_match,), L2-normalised.
            count: candidates wanted; so many are found if so many are allowed.
            allowed: Rows to choose from, or None for all.

        Returns:
            Rows, best first, those of equal score in ascending order, and their cosines, which
            are exact whatever the ANN keeps of a vector.
        """
        total = self.entry.count if allowed is None else allowed.count
        # A filter that leaves few rows is answered exactly, at less cost than a widened search.
        few = allowed is not None and (total <= EXACT_UP_TO or not self.ann.takes_selections)
        if few or count >= total:
            return exact_search(self.embeddings, query, count, allowed)
        return retrieve(self.first_stage, self.embeddings, query, count, allowed)

    def order(
        self,
        query: NDArray[np.float32],
        count: int,
        num_candidates: int,
        allowed: Selection | None = None,
    ) -> tuple[NDArray[np.int64], NDArray[np.float32]]:
        """Order the first `count` items; a longer order always begins with a shorter one.

        The ANN finds the first `num_candidates`, always asked for just as many, so that pages
        neither repeat an item nor skip one. What lies beyond is ordered exactly.

        Args:
            query: (d_match,), L2-normalised.
            count: items wanted.
            num_candidates: Number of candidates of the first stage.
            allowed: Rows to choose from, or None for all.

        Returns:
            Rows and cosines, see `candidates`.
        """
        head, head_scores = self.candidates(query, num_candidates, allowed)
        if count <= len(head) or len(head) < num_candidates:
            return head[:count], head_scores[:count]
        rest = np.ones(self.entry.count, dtype=np.bool_) if allowed is None else allowed.mask.copy()
        rest[head] = False
        tail, tail_scores = exact_search(self.embeddings, query, count - len(head), Selection(rest))
        return np.concatenate([head, tail]), np.concatenate([head_scores, tail_scores])


def open_collection(folder: Path, target: Target, entry: CollectionEntry) -> StoredCollection:
    """Map the files of one collection of a generation.

    Args:
        folder: Folder of the generation.
        target: Target of the collection: images or texts.
        entry: Manifest entry of the collection.

    Raises:
        IndexCorruptError: a file is not what the manifest says.
    """
    place = folder / target
    ann = AnnIndex.open(place / ANN, entry.ann.search_width, entry.ann.oversample)
    if (ann.count, ann.dim) != (entry.count, entry.embedding_dim):
        expected = f"{entry.count} vectors of {entry.embedding_dim}"
        raise IndexCorruptError(place / ANN, f"expected {expected}, got {ann.count} of {ann.dim}")
    shape = (entry.count, entry.embedding_dim)
    embeddings = map_npy(place / EMBEDDINGS, np.float32, shape)
    tokens = TokenStore.open(
        place, entry.count, entry.token_count, entry.token_dim, entry.token_dtype
    )
    items = ItemStore(place / ITEMS)
    if items.count != entry.count:
        items.close()
        reason = f"expected {entry.count} items, got {items.count}"
        raise IndexCorruptError(place / ITEMS, reason)
    return StoredCollection(
        target=target,
        entry=entry,
        ann=ann,
        first_stage=ann,
        second_stage=TokenAlignment(tokens),
        embeddings=embeddings,
        tokens=tokens,
        items=items,
    )
