"""Current state of a collection: built and added items, without the deleted ones."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from jaxtyping import Float
from numpy.typing import NDArray
from pyroaring import BitMap

from aladin_index.ann.ann_index import AnnIndex
from aladin_index.ann.corrected import stored_biases
from aladin_index.ann.exact_search import exact_search, merge_orders
from aladin_index.ann.first_stage import FirstStage
from aladin_index.changes.reader import CollectionChanges, LiveItems
from aladin_index.format.manifest import CollectionEntry
from aladin_index.items.filters import Filter
from aladin_index.items.selection import Selection, bitmap_of
from aladin_index.items.store import ItemStore
from aladin_index.search.collection import Everything, FirstStageQuery, Ordered, SecondStageQuery
from aladin_index.tokens.lazy_bounds import LEAST_BOUNDED, WORTH_BOUNDING, LazyBounds
from aladin_index.tokens.maxsim import (
    SecondStage,
    alignment_with_candidates,
    token_similarities,
)
from aladin_index.tokens.store import TokenStore
from aladin_network.types import COMPARED_AS, Modality, Target


@dataclass(frozen=True, kw_only=True)
class StoredCollection:
    """The images or the texts of an open index.

    Attributes:
        target: Target of the collection: images or texts.
        entry: Manifest entry of the collection.
        ann: Index of the first stage, as stored.
        first_stages: Ways to find the nearest items, in the order in which they are asked.
        second_stage: Re-ranking implementation.
        embeddings: (items, width) float32, memory-mapped, with the biases of a correction.
        tokens: Tokens of the second stage.
        items: IDs, texts and metadata.
        bounds: Bounds of alignment scores, or None if the second stage is not that of the CPU.
    """

    target: Target
    entry: CollectionEntry
    ann: AnnIndex
    first_stages: Sequence[FirstStage]
    second_stage: SecondStage
    embeddings: NDArray[np.float32]
    tokens: TokenStore
    items: ItemStore
    bounds: LazyBounds | None = None

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
        return self.candidates_of_all([query], count, allowed)[0]

    def candidates_of_all(
        self,
        queries: Sequence[NDArray[np.float32]],
        count: int,
        allowed: Selection | None = None,
    ) -> list[tuple[NDArray[np.int64], NDArray[np.float32]]]:
        """Find the nearest items of several queries as `candidates` does, in one call of FAISS."""
        together = queries[0][None] if len(queries) == 1 else np.stack(queries)
        for stage in self.first_stages:
            if (found := stage.nearest(together, count, allowed)) is not None:
                return found
        raise AssertionError("the last first stage takes every search")

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
            query: See `candidates`, whose result this returns, too.
            count: Number of requested items.
            num_candidates: Number of candidates of the first stage.
            allowed: Rows to choose from, or None for all.
            head: The candidates, if they have been found.
        """
        rows, scores = head or self.candidates(query, num_candidates, allowed)
        if count <= len(rows) or len(rows) < num_candidates:
            return rows[:count], scores[:count]
        size = self.entry.count
        every = BitMap(range(size)) if allowed is None else allowed.bitmap
        rest = Selection(every - bitmap_of(rows), size)
        tail, tail_scores = exact_search(self.embeddings, query, count - len(rows), rest)
        return np.concatenate([rows, tail]), np.concatenate([scores, tail_scores])


@dataclass(frozen=True, kw_only=True)
class FileCollection:
    """A snapshot of a collection; later changes do not affect it, and any searches may share it.

    The rows of the generation come first, 0 to ``base.entry.count - 1``; an item that was added
    has a row above. A row is never used again, also where its item was removed.

    Attributes:
        base: Collection of the generation.
        changes: Changes since the generation was built, or None if there are none.
        filter: Filter that the results of `order` must pass, or None without a filter.
    """

    base: StoredCollection
    changes: CollectionChanges | None = None
    filter: Filter | None = None

    @property
    def target(self) -> Target:
        """Target of the collection: images or texts."""
        return self.base.target

    @property
    def entry(self) -> CollectionEntry:
        """Manifest entry of the generation's collection."""
        return self.base.entry

    @property
    def count(self) -> int:
        """Number of items that a search without a filter may find."""
        return self.base.entry.count if self.changes is None else self.changes.count

    @property
    def has_tokens(self) -> bool:
        """Whether the collection has tokens for re-ranking; imported embeddings have none."""
        return self.base.entry.token_count > 0

    @property
    def items(self) -> ItemStore | LiveItems:
        """Ids, texts and metadata."""
        changes, items = self.changes, self.base.items
        return items if changes is None else LiveItems(items, changes)

    @cached_property
    def selection(self) -> Selection | None:
        """The live rows that pass the filter, or None if all rows do and none is deleted."""
        changes = self.changes
        if self.filter is None:
            return None if changes is None else changes.live
        passing = self.base.items.select(self.filter)
        return passing if changes is None else changes.select(passing, self.filter)

    def order(
        self,
        query: NDArray[np.float32],
        count: int,
        num_candidates: int,
        second_stage: SecondStageQuery | None = None,
    ) -> Ordered:
        """Order the first `count` items, see `aladin_index.search.collection.Collection`."""
        return self.order_all([FirstStageQuery(query, count, num_candidates, second_stage)])[0]

    def order_all(self, searches: Sequence[FirstStageQuery]) -> list[Ordered]:
        """Order the first items for several searches; as many candidates are found in one call.

        The generation's items are found as `StoredCollection.order` does, added ones exactly.
        """
        selection, changes, base = self.selection, self.changes, self.base
        of_base, of_added = (selection, None) if changes is None else changes.split(selection)
        every = base.entry.count if changes is None else changes.count
        total = every if selection is None else selection.count
        together: dict[int, list[NDArray[np.float32]]] = {}
        for query, _, num_candidates, _ in searches:
            together.setdefault(num_candidates, []).append(query)
        found = {n: iter(base.candidates_of_all(q, n, of_base)) for n, q in together.items()}
        ordered: list[Ordered] = []
        for query, count, num_candidates, second_stage in searches:
            candidates, upper = min(num_candidates, total), None
            rows, match = base.order(
                query, count, num_candidates, of_base, next(found[num_candidates])
            )
            if changes is not None:
                added, of_new = exact_search(changes.embeddings, query, count, of_added)
                added = added + changes.base_count
                rows, match = merge_orders(rows, match, added, of_new, count)
            elif base.bounds and second_stage and second_stage.ranks and len(rows) >= LEAST_BOUNDED:
                tokens, modality, _ = second_stage
                upper = base.bounds.of_candidates(tokens, modality, rows)
                if upper is not None and base.entry.corrected:
                    upper = upper - self.biases(tokens, modality, rows)[:, 1]
            ordered.append(Ordered(rows, match, candidates, upper))
        return ordered

    def everything(self, query: NDArray[np.float32], second_stage: SecondStageQuery) -> Everything:
        """Return all items that may be found, see `aladin_index.search.collection.Collection`."""
        base, changes, built = self.base, self.changes, self.base.entry.count
        chosen = self.selection
        of_base, of_added = (chosen, None) if changes is None else changes.split(chosen)
        rows, match = exact_search(base.embeddings, query, None, of_base)
        upper = np.full(len(rows), np.inf, dtype=np.float32)
        asked = COMPARED_AS[second_stage.modality, self.base.target]
        if base.bounds is not None and len(rows) > WORTH_BOUNDING * built:
            upper = base.bounds.get().upper(second_stage.tokens, asked)[rows]
        if changes is not None:
            added, added_match = exact_search(changes.embeddings, query, None, of_added)
            rows, match = np.append(rows, added + built), np.append(match, added_match)
            upper = np.append(upper, np.full(len(added), np.inf, dtype=np.float32))
        if base.entry.corrected and asked == second_stage.modality:
            upper -= self.biases(second_stage.tokens, second_stage.modality, rows)[:, 1]
        return Everything(rows, match, upper)

    def lengths(self, rows: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return the number of tokens of some items."""
        if self.changes is None:
            return self.base.tokens.lengths(rows)
        lengths = np.empty(len(rows), dtype=np.int64)
        built = rows < self.base.entry.count
        lengths[built] = self.base.tokens.lengths(rows[built])
        if not built.all():
            lengths[~built] = self.changes.lengths(rows[~built])
        return lengths

    def align(
        self,
        query: Float[np.ndarray, "query_tokens dim"],
        modality: Modality,
        rows: NDArray[np.int64],
    ) -> NDArray[np.float32]:
        """Score items, see `aladin_index.search.collection.Collection`."""
        return self.align_all([query], modality, [rows])[0]

    def align_all(
        self,
        queries: Sequence[Float[np.ndarray, "query_tokens dim"]],
        modality: Modality,
        rows: Sequence[NDArray[np.int64]],
    ) -> list[NDArray[np.float32]]:
        """Score the items of several queries, those of the generation in one call."""
        asked = COMPARED_AS[modality, self.base.target]
        built = [of_query < self.base.entry.count for of_query in rows]
        stage, pairs = self.base.second_stage, zip(rows, built, strict=True)
        of_base = rows if self.changes is None else [of_query[each] for of_query, each in pairs]
        known = stage.align_all(queries, asked, of_base)
        for place, (query, of_query, places) in enumerate(zip(queries, rows, built, strict=True)):
            if self.changes is None or places.all():
                continue
            both = np.empty(len(of_query), dtype=np.float32)
            both[places] = known[place]
            store = self.changes.tokens(of_query[~places])
            added = np.arange(store.count, dtype=np.int64)
            both[~places] = alignment_with_candidates(query, asked, store, added)
            known[place] = both
        if not self.entry.corrected or asked != modality:  # regions are compared without
            return known
        each = zip(known, queries, rows, strict=True)
        return [found - self.biases(query, modality, of)[:, 1] for found, query, of in each]

    def biases(
        self,
        query: Float[np.ndarray, "query_tokens dim"],
        modality: Modality,
        rows: NDArray[np.int64],
    ) -> Float[np.ndarray, "rows 2"]:
        """Return what a correction subtracts from the cosines and alignment scores of items."""
        added = None if self.changes is None else self.changes.embeddings
        biases = stored_biases(self.base.embeddings, added, self.entry.embedding_dim, rows)
        return biases * np.array([1, len(query) if modality == "text" else 1], dtype=np.float32)

    def similarities(
        self,
        query: Float[np.ndarray, "query_tokens dim"],
        modality: Modality,
        rows: NDArray[np.int64],
    ) -> list[NDArray[np.float32]]:
        """Compare tokens, see `aladin_index.tokens.maxsim.SecondStage`."""
        modality = COMPARED_AS[modality, self.base.target]
        built = rows < self.base.entry.count
        of_built = self.base.second_stage.similarities(query, modality, rows[built])
        if self.changes is None or built.all():
            return of_built
        store = self.changes.tokens(rows[~built])
        of_added = token_similarities(query, modality, store, np.arange(store.count))
        parts = iter(of_built), iter(of_added)
        return [next(parts[row >= self.base.entry.count]) for row in rows.tolist()]

    def tokens(self, row: int) -> Float[np.ndarray, "tokens dim"]:
        """Read the tokens of one item, in float32."""
        if self.changes is None or row < self.base.entry.count:
            return self.base.tokens.read(np.array([row])).values
        return self.changes.tokens(np.array([row])).read(np.array([0])).values

    def embedding(self, row: int) -> Float[np.ndarray, " dim"]:
        """Read the embedding of one item."""
        return self.embeddings([row])[0]

    def embeddings(self, rows: Sequence[int]) -> Float[np.ndarray, "rows dim"]:
        """Read the embeddings of some items, at least one."""
        base, built = self.base.embeddings, self.base.entry.count
        added = base if self.changes is None else self.changes.embeddings
        vectors = [base[row] if row < built else added[row - built] for row in rows]
        return np.stack(vectors)[:, : self.entry.embedding_dim]
