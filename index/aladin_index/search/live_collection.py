"""Current state of a collection: built and added items, without the deleted ones."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import chain
from typing import NamedTuple

import numpy as np
from jaxtyping import Float
from numpy.typing import NDArray
from pyroaring import BitMap

from aladin_index.ann.ann_index import EXACT_UP_TO, AnnIndex
from aladin_index.ann.exact_scan import ExactScan
from aladin_index.ann.first_stage import (
    FirstStage,
    exact_search,
    merge_orders,
    retrieve,
    worth_copying,
)
from aladin_index.changes.reader import CollectionChanges
from aladin_index.format.manifest import CollectionEntry
from aladin_index.items.filters import Filter
from aladin_index.items.selection import Selection, bitmap_of
from aladin_index.items.store import ItemStore
from aladin_index.items.tables import StoredItem
from aladin_index.learned.stage import LearnedFirstStage, LearnedSearch
from aladin_index.search.backend import Everything, Ordered, SecondStageQuery
from aladin_index.tokens.lazy_bounds import LEAST_BOUNDED, LazyBounds
from aladin_index.tokens.maxsim import (
    SecondStage,
    alignment_with_candidates,
    token_similarities,
)
from aladin_index.tokens.store import TokenStore
from aladin_network.types import Modality, Target

# Share of the rows from which on the bounds of all are computed; fewer are scored sooner.
_WORTH_BOUNDING = 0.1


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
        total = self.entry.count if allowed is None else allowed.count
        # A device has its own first stage, and few rows are compared one by one.
        scan = self.scan if self.first_stage is self.ann and count < total else None
        is_sparse = allowed is not None and worth_copying(allowed, self.entry.count)
        if scan is not None and not is_sparse and scan.is_ready():
            return scan.search(query, count, allowed)
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
            count: Number of requested items.
            num_candidates: Number of candidates of the first stage.
            allowed: Rows to choose from, or None for all.

        Returns:
            Rows and cosines, see `candidates`.
        """
        head, head_scores = self.candidates(query, num_candidates, allowed)
        if count <= len(head) or len(head) < num_candidates:
            return head[:count], head_scores[:count]
        size = self.entry.count
        every = BitMap(range(size)) if allowed is None else allowed.bitmap
        rest = Selection(every - bitmap_of(head), size)
        tail, tail_scores = exact_search(self.embeddings, query, count - len(head), rest)
        return np.concatenate([head, tail]), np.concatenate([head_scores, tail_scores])


@dataclass(frozen=True, kw_only=True)
class LiveCollection:
    """A snapshot of a collection; later changes do not affect it.

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
    def items(self) -> LiveItems:
        """Ids, texts and metadata."""
        return LiveItems(self.base.items, self.base.entry.count, self.changes)

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
        """Order the first `count` items, see `aladin_index.search.backend.Collection`.

        The generation's items are found as `StoredCollection.order` does, added ones exactly.
        """
        selection, changes, base = self.selection, self.changes, self.base
        total = base.entry.count if changes is None else changes.count
        total = total if selection is None else selection.count
        if base.learned is not None and second_stage is not None and second_stage.weight:
            vector = base.learned.query(query, second_stage.tokens, second_stage.weight)
            wanted = LearnedSearch(vector, query, count, num_candidates, selection)
            rows, match = base.learned.order(wanted, base.embeddings, changes)
            return Ordered(rows, match, min(num_candidates, total), is_learned=True)
        if changes is None:
            rows, match = base.order(query, count, num_candidates, selection)
            upper, bounds = None, base.bounds if len(rows) >= LEAST_BOUNDED else None
            if bounds is not None and second_stage is not None and second_stage.weight:
                upper = bounds.of_candidates(second_stage.tokens, second_stage.modality, rows)
            return Ordered(rows, match, min(num_candidates, total), upper)
        of_base, of_added = changes.split(selection)
        if of_base is not None and of_base.count == 0:
            rows, match = np.empty(0, dtype=np.int64), np.empty(0, dtype=np.float32)
        else:
            rows, match = base.order(query, count, num_candidates, of_base)
        added, added_match = exact_search(changes.embeddings, query, count, of_added)
        if len(added):
            rows, match = merge_orders(rows, match, added + changes.base_count, added_match, count)
        return Ordered(rows, match, min(num_candidates, total))

    def everything(self, query: NDArray[np.float32], second_stage: SecondStageQuery) -> Everything:
        """Return all items that may be found, see `aladin_index.search.backend.Collection`."""
        base, changes, built = self.base, self.changes, self.base.entry.count
        chosen = self.selection
        of_base, of_added = (chosen, None) if changes is None else changes.split(chosen)
        rows, match = exact_search(base.embeddings, query, None, of_base)
        upper = np.full(len(rows), np.inf, dtype=np.float32)
        if base.bounds is not None and len(rows) > _WORTH_BOUNDING * built:
            upper = base.bounds.get().upper(second_stage.tokens, second_stage.modality)[rows]
        if changes is not None:
            added, added_match = exact_search(changes.embeddings, query, None, of_added)
            rows, match = np.append(rows, added + built), np.append(match, added_match)
            upper = np.append(upper, np.full(len(added), np.inf, dtype=np.float32))
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
        """Score items by late interaction, see
        `aladin_index.tokens.maxsim.alignment_with_candidates`."""
        if self.changes is None:
            return self.base.second_stage.align(query, modality, rows)
        scores = np.empty(len(rows), dtype=np.float32)
        built = rows < self.base.entry.count
        scores[built] = self.base.second_stage.align(query, modality, rows[built])
        if not built.all():
            store = self.changes.tokens(rows[~built])
            places = np.arange(store.count, dtype=np.int64)
            scores[~built] = alignment_with_candidates(query, modality, store, places)
        return scores

    def similarities(
        self,
        query: Float[np.ndarray, "query_tokens dim"],
        modality: Modality,
        rows: NDArray[np.int64],
    ) -> list[NDArray[np.float32]]:
        """Compare tokens, see `aladin_index.tokens.maxsim.SecondStage`."""
        if self.changes is None:
            return self.base.second_stage.similarities(query, modality, rows)
        built = rows < self.base.entry.count
        of_built = self.base.second_stage.similarities(query, modality, rows[built])
        if built.all():
            return of_built
        store = self.changes.tokens(rows[~built])
        of_added = token_similarities(query, modality, store, np.arange(store.count))
        parts = iter(of_built), iter(of_added)
        return [next(parts[row >= self.base.entry.count]) for row in rows.tolist()]

    def tokens(self, row: int) -> Float[np.ndarray, "tokens dim"]:
        """Read the tokens of one item, in float32."""
        if row < self.base.entry.count:
            return self.base.tokens.read(np.array([row])).values
        assert self.changes is not None  # only there does such a row come from
        return self.changes.tokens(np.array([row])).read(np.array([0])).values

    def embedding(self, row: int) -> Float[np.ndarray, " dim"]:
        """Read the embedding of one item."""
        if row < self.base.entry.count:
            return np.array(self.base.embeddings[row])
        assert self.changes is not None
        return self.changes.embeddings_of(np.array([row]))[0]

    def embeddings(self, rows: Sequence[int]) -> Float[np.ndarray, "rows dim"]:
        """Read the embeddings of some items, at least one."""
        return np.stack([self.embedding(row) for row in rows])


class LiveItems(NamedTuple):
    """Reads ids, texts and metadata of the items of a `LiveCollection`.

    Attributes:
        base: Items of the generation.
        base_count: Number of them.
        changes: Changes since the generation was built, or None if there are none.
    """

    base: ItemStore
    base_count: int
    changes: CollectionChanges | None

    def by_rows(self, rows: Sequence[int]) -> list[StoredItem]:
        """Return the items at some rows, in the requested order."""
        if self.changes is None:
            return self.base.by_rows(rows)
        built = [row for row in rows if row < self.base_count]
        added = [row for row in rows if row >= self.base_count]
        found = {item.row: item for item in self.base.by_rows(built)}
        found.update((item.row, item) for item in self.changes.by_rows(added))
        return [found[row] for row in rows]

    def by_id(self, item_id: str) -> StoredItem | None:
        """Return the live item with this id, or None if there is none."""
        item = self.base.by_id(item_id)
        if self.changes is None:
            return item
        if item is not None and self.changes.is_live(item.row):
            return item
        return self.changes.by_id(item_id)

    def by_ids(self, ids: Sequence[str]) -> list[StoredItem | None]:
        """Return the result of `by_id` for each id."""
        return [self.by_id(item_id) for item_id in ids]

    def ids(self) -> Iterator[tuple[str, int]]:
        """Yield the id and the row of every live item; those of the generation come first."""
        if self.changes is None:
            yield from self.base.ids()
            return
        for item_id, row in chain(self.base.ids(), self.changes.ids()):
            if self.changes.is_live(row):
                yield item_id, row
