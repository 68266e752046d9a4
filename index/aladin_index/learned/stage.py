"""The fitted first stage of an open collection of photos, and its files.

A photo's vector has two parts: its embedding and what `aladin_network.scoring.learned_stage` finds
for its alignment, each weighted as in the model's fusion. The inner product with the same parts of
a query approximates the fused score, which orders the hits, and not only one half of it. Where the
model ranks by the alignment alone, the embedding has no part in it.
"""

from __future__ import annotations

import threading
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

import numpy as np
from jaxtyping import Float
from numpy.typing import NDArray
from pyroaring import BitMap

from aladin_index.ann.ann_index import EXACT_UP_TO, AnnIndex
from aladin_index.ann.first_stage import exact_search, largest, retrieve
from aladin_index.changes.reader import CollectionChanges
from aladin_index.format.manifest import CollectionEntry, LearnedEntry
from aladin_index.format.npy import map_npy, read_rows_ahead
from aladin_index.items.selection import Selection, bitmap_of
from aladin_index.learned.files import (
    LEARNED_ANN,
    LEARNED_FIT,
    LEARNED_QUERIES,
    LEARNED_VECTORS,
    FirstStageFit,
)
from aladin_index.learned.weights import Weights
from aladin_network.errors import IndexCorruptError
from aladin_network.scoring.learned_stage import LearnedStage
from aladin_network.scoring.token_rows import TokenRows


class LearnedSearch(NamedTuple):
    """What a search wants of the first stage.

    Attributes:
        vector: Vector of the query, see `LearnedFirstStage.query`.
        query: (d_match,) embedding of the query.
        wanted: Number of photos to order.
        candidates: Number of candidates among them.
        selection: Rows to choose from, of the generation and added ones, or None for all.
    """

    vector: NDArray[np.float32]
    query: NDArray[np.float32]
    wanted: int
    candidates: int
    selection: Selection | None


@dataclass(frozen=True, kw_only=True)
class LearnedFirstStage:
    """Finds candidates by the fused score; thread-safe.

    Attributes:
        fitted: What it is made of.
        vectors: (photos, both) float32, memory-mapped.
        ann: FAISS index of the vectors.
    """

    fitted: FirstStageFit
    vectors: NDArray[np.float32]
    ann: AnnIndex
    _added: _AddedVectors = field(default_factory=lambda: _AddedVectors())

    def query(
        self,
        vector: NDArray[np.float32],
        words: Float[np.ndarray, "words dim"],
        fusion: float,
    ) -> NDArray[np.float32]:
        """Return the vector of a text.

        Args:
            vector: (width,) its embedding, see `aladin_index.ann.corrected.query_vectors`.
            words: Words of the text.
            fusion: Weight of the alignment in the fusion.
        """
        lengths = np.array([len(words)])
        learned = self.fitted.fit.query_vectors(TokenRows(words, lengths))
        return self.fitted.weights.query(vector, learned[0], fusion, lengths[0])

    def candidates(
        self, query: NDArray[np.float32], count: int, allowed: Selection | None = None
    ) -> tuple[NDArray[np.int64], NDArray[np.float32]]:
        """Find the photos with the largest inner products, best first, with these products.

        Args:
            query: Result of `query`.
            count: Number of photos wanted; as many are found if enough are allowed.
            allowed: Rows to choose from, or None for all.
        """
        total = len(self.vectors) if allowed is None else allowed.count
        few = allowed is not None and (total <= EXACT_UP_TO or not self.ann.takes_selections)
        if few or count >= total:
            return exact_search(self.vectors, query, count, allowed)
        return retrieve(self.ann, self.vectors, query, count, allowed)

    def order(
        self,
        search: LearnedSearch,
        embeddings: NDArray[np.float32],
        changes: CollectionChanges | None,
    ) -> tuple[NDArray[np.int64], NDArray[np.float32]]:
        """Order photos: the candidates by their cosines, then the others by theirs.

        Args:
            search: What is wanted.
            embeddings: (photos, d_match) embeddings of the generation.
            changes: Changes since the generation was built, or None if there are none.

        Returns:
            Rows and their exact cosines; a longer order always begins with a shorter one.
        """
        count, selection = search.candidates, search.selection
        of_base, of_added = (selection, None) if changes is None else changes.split(selection)
        head, scores = self.candidates(search.vector, count, of_base)
        if changes is not None:
            added, of_new = exact_search(self.added(changes), search.vector, count, of_added)
            best = largest(np.concatenate([scores, of_new]), count)
            head = np.concatenate([head, added + changes.base_count])[best]
        if self.ann.is_cold:
            read_rows_ahead(embeddings, head)
        match = _cosines(search.query, embeddings, changes, head)
        by_match = np.lexsort((head, -match))
        head, match = head[by_match], match[by_match]
        if search.wanted <= len(head) or len(head) < count:
            return head[: search.wanted], match[: search.wanted]
        others, cosines = _others(search, embeddings, changes, head)
        return np.concatenate([head, others]), np.concatenate([match, cosines])

    def added(self, changes: CollectionChanges) -> NDArray[np.float32]:
        """Return the vectors of all items ever added, (added, both); new ones are fitted first."""
        return self._added.of(changes, self)

    @classmethod
    def open(
        cls, folder: Path, entry: LearnedEntry, collection: CollectionEntry
    ) -> LearnedFirstStage:
        """Map the files of a collection.

        Args:
            folder: Folder of the collection.
            entry: Entry in the manifest.
            collection: Entry of the collection.

        Raises:
            IndexCorruptError: If a file does not match the manifest.
        """
        count, token_dim = collection.count, collection.token_dim
        ann = AnnIndex.open(folder / LEARNED_ANN, entry.ann.search_width, entry.ann.oversample)
        if (ann.count, ann.dim) != (count, entry.dim):
            expected = f"expected {count} vectors of {entry.dim}, got {ann.count} of {ann.dim}"
            raise IndexCorruptError(folder / LEARNED_ANN, expected)
        weights = Weights(
            match=entry.match,
            align=entry.align,
            fusion=entry.fusion,
            corrected=collection.corrected,
        )
        fitted = FirstStageFit(
            fit=LearnedStage.load(folder / LEARNED_FIT, token_dim),
            weights=weights,
            queries=map_npy(folder / LEARNED_QUERIES, np.float32, (entry.queries, entry.dim)),
        )
        vectors = map_npy(folder / LEARNED_VECTORS, np.float32, (count, entry.dim))
        return cls(fitted=fitted, vectors=vectors, ann=ann)


def _cosines(
    query: NDArray[np.float32],
    embeddings: NDArray[np.float32],
    changes: CollectionChanges | None,
    rows: NDArray[np.int64],
) -> NDArray[np.float32]:
    """Return the cosines of some rows, built and added ones, in their order."""
    cosines = np.empty(len(rows), dtype=np.float32)
    built = rows < len(embeddings)
    cosines[built] = embeddings[rows[built]] @ query
    if changes is not None:
        cosines[~built] = changes.embeddings_of(rows[~built]) @ query
    return cosines


def _others(
    search: LearnedSearch,
    embeddings: NDArray[np.float32],
    changes: CollectionChanges | None,
    head: NDArray[np.int64],
) -> tuple[NDArray[np.int64], NDArray[np.float32]]:
    """Order the photos that are wanted after the candidates; return their rows and cosines."""
    total = len(embeddings) if changes is None else changes.rows
    every = BitMap(range(total)) if search.selection is None else search.selection.bitmap
    allowed = Selection(every - bitmap_of(head), total)
    count = search.wanted - len(head)
    if changes is None:
        return exact_search(embeddings, search.query, count, allowed)
    of_base, of_added = allowed.split(len(embeddings))
    rows, cosines = exact_search(embeddings, search.query, count, of_base)
    added, of_new = exact_search(changes.embeddings, search.query, count, of_added)
    rows = np.concatenate([rows, added + changes.base_count])
    cosines = np.concatenate([cosines, of_new])
    best = largest(cosines, count)
    return rows[best], cosines[best]


class _AddedVectors:
    """Vectors of added photos, fitted once when a search first meets them."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._vectors: NDArray[np.float32] | None = None

    def of(self, changes: CollectionChanges, stage: LearnedFirstStage) -> NDArray[np.float32]:
        count = len(changes.embeddings)
        with self._lock:
            known = self._vectors
            if known is None:
                known = np.empty((0, stage.vectors.shape[1]), dtype=np.float32)
            if len(known) < count:
                rows = np.arange(len(known), count, dtype=np.int64) + changes.base_count
                store = changes.tokens(rows)
                vectors = changes.embeddings_of(rows)
                known = np.concatenate([known, *stage.fitted.vectors(vectors, store)])
                self._vectors = known
            return known[:count]
