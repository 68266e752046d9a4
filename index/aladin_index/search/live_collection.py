"""Current state of a collection: built and added items, without the deleted ones."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import chain
from typing import NamedTuple

import numpy as np
import torch
from jaxtyping import Float
from numpy.typing import NDArray
from torch import Tensor

from aladin_index.ann.first_stage import (
    exact_search,
    merge_orders,
)
from aladin_index.changes.reader import CollectionChanges
from aladin_index.format.manifest import CollectionEntry
from aladin_index.items.filters import Filter
from aladin_index.items.selection import Selection
from aladin_index.items.store import ItemStore
from aladin_index.items.tables import StoredItem
from aladin_index.learned.stage import LearnedSearch
from aladin_index.search.backend import (
    Everything,
    FirstStageQuery,
    Ordered,
    SecondStageQuery,
)
from aladin_index.search.stored_collection import StoredCollection
from aladin_index.tokens.lazy_bounds import LEAST_BOUNDED
from aladin_index.tokens.maxsim import (
    alignment_with_candidates,
    token_similarities,
)
from aladin_network.types import Modality, Target

# Share of the rows from which on the bounds of all are computed; fewer are scored sooner.
_WORTH_BOUNDING = 0.1


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
    def serves_many(self) -> bool:
        """True: a search changes nothing."""
        return True

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
        """Order the first `count` items, see `aladin_index.search.backend.Collection`."""
        return self.order_all([FirstStageQuery(query, count, num_candidates, second_stage)])[0]

    def order_all(self, searches: Sequence[FirstStageQuery]) -> list[Ordered]:
        """Order the first items for several searches, see `aladin_index.search.backend.Collection`.

        The generation's items are found as `StoredCollection.order` does, added ones exactly.
        """
        selection, changes, base = self.selection, self.changes, self.base
        of_base, of_added = (selection, None) if changes is None else changes.split(selection)
        total = self.count if selection is None else selection.count
        heads = self._heads(searches, of_base)
        ordered: list[Ordered] = []
        for (query, count, num_candidates, second_stage), head in zip(searches, heads, strict=True):
            fused = second_stage if second_stage is not None and second_stage.weight else None
            candidates, upper = min(num_candidates, total), None
            if base.learned is not None and fused is not None:
                vector = base.learned.query(query, fused.tokens, fused.weight or 0.0)
                wanted = LearnedSearch(vector, query, count, num_candidates, selection)
                rows, match = base.learned.order(wanted, base.embeddings, changes)
                ordered.append(Ordered(rows, match, candidates, is_learned=True))
                continue
            rows, match = base.order(query, count, num_candidates, of_base, head)
            if changes is not None:
                added, of_new = exact_search(changes.embeddings, query, count, of_added)
                if len(added):
                    new = added + changes.base_count
                    rows, match = merge_orders(rows, match, new, of_new, count)
            elif base.bounds is not None and fused is not None and len(rows) >= LEAST_BOUNDED:
                upper = base.bounds.of_candidates(fused.tokens, fused.modality, rows)
            ordered.append(Ordered(rows, match, candidates, upper))
        return ordered

    def _heads(
        self, searches: Sequence[FirstStageQuery], allowed: Selection | None
    ) -> list[tuple[NDArray[np.int64], NDArray[np.float32]] | None]:
        """Find the candidates of searches, together where as many are wanted.

        Returns:
            Rows and cosines, or None for a search by a first stage that was fitted.
        """
        heads: list[tuple[NDArray[np.int64], NDArray[np.float32]] | None] = [None] * len(searches)
        places: dict[int, list[int]] = {}
        for place, search in enumerate(searches):
            is_fused = search.second_stage is not None and search.second_stage.weight
            if self.base.learned is None or not is_fused:
                places.setdefault(search.num_candidates, []).append(place)
        for wanted, group in places.items():
            queries = np.stack([searches[place].query for place in group])
            found = self.base.candidates_of_all(queries, wanted, allowed)
            for place, head in zip(group, found, strict=True):
                heads[place] = head
        return heads

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
        query: Float[Tensor, "query_tokens dim"],
        modality: Modality,
        rows: NDArray[np.int64],
    ) -> NDArray[np.float32]:
        """Score items by late interaction, see
        `aladin_index.tokens.maxsim.alignment_with_candidates`."""
        return self.align_all([query], modality, [rows])[0]

    def align_all(
        self,
        queries: Sequence[Float[Tensor, "query_tokens dim"]],
        modality: Modality,
        rows: Sequence[NDArray[np.int64]],
    ) -> list[NDArray[np.float32]]:
        """Score the items of several queries, those of the generation in one call."""
        if self.changes is None:
            return self.base.second_stage.align_all(queries, modality, rows)
        built = [of_query < self.base.entry.count for of_query in rows]
        of_base = [of_query[places] for of_query, places in zip(rows, built, strict=True)]
        known = self.base.second_stage.align_all(queries, modality, of_base)
        scores: list[NDArray[np.float32]] = []
        for query, of_query, places, found in zip(queries, rows, built, known, strict=True):
            both = np.empty(len(of_query), dtype=np.float32)
            both[places] = found
            if not places.all():
                store = self.changes.tokens(of_query[~places])
                added = np.arange(store.count, dtype=np.int64)
                both[~places] = alignment_with_candidates(query, modality, store, added)
            scores.append(both)
        return scores

    def similarities(
        self,
        query: Float[Tensor, "query_tokens dim"],
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

    def tokens(self, row: int) -> Float[Tensor, "tokens dim"]:
        """Read the tokens of one item, in float32."""
        if row < self.base.entry.count:
            return self.base.tokens.read(np.array([row])).values
        assert self.changes is not None  # only there does such a row come from
        return self.changes.tokens(np.array([row])).read(np.array([0])).values

    def embedding(self, row: int) -> Float[Tensor, " dim"]:
        """Read the embedding of one item."""
        if row < self.base.entry.count:
            return torch.from_numpy(self.base.embeddings[row].copy())
        assert self.changes is not None
        return torch.from_numpy(self.changes.embeddings_of(np.array([row]))[0])

    def embeddings(self, rows: Sequence[int]) -> Float[Tensor, "rows dim"]:
        """Read the embeddings of some items, at least one."""
        return torch.stack([self.embedding(row) for row in rows])


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
