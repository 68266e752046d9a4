"""Current state of a collection: built and added items, without the deleted ones."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property

import numpy as np
from jaxtyping import Float
from numpy.typing import NDArray
from pyroaring import BitMap

from aladin_index.ann.ann_index import AnnIndex
from aladin_index.ann.exact_search import exact_scores, exact_search, merge_orders
from aladin_index.ann.first_stage import FirstStage
from aladin_index.ann.hub_correction import query_vectors, stored_biases
from aladin_index.changes.reader import CollectionChanges, LiveItems
from aladin_index.format.manifest import CollectionEntry
from aladin_index.items.field_tables import FieldValues
from aladin_index.items.filters import Filter
from aladin_index.items.selection import Selection, bitmap_of
from aladin_index.items.stacks import StackIndex, Stacks
from aladin_index.items.store import ItemStore
from aladin_index.items.words import FoundWords, WordIndex
from aladin_index.search.collection import (
    ExhaustiveQuery,
    FirstStageQuery,
    ListedPage,
    ListOrder,
    Ordered,
    RawScores,
    SecondStageQuery,
)
from aladin_index.search.lexical import find_rare_words
from aladin_index.search.listing import Listed, list_fields, list_items
from aladin_index.search.scan import ItemScan, Scanned, ScanQuery
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
        scan: What scores all items at once, or None on the CPU.
        stacks: Stacks of the photos, also of those that are added.
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
    scan: ItemScan | None = None
    stacks: StackIndex = field(default_factory=StackIndex)

    def candidates(
        self, query: NDArray[np.float32], count: int, allowed: Selection | None = None
    ) -> tuple[NDArray[np.int64], NDArray[np.float32]]:
        """Return the rows of the nearest items and their exact cosines, see `candidates_of_all`."""
        return self.candidates_of_all([query], count, allowed)[0]

    def candidates_of_all(
        self,
        queries: Sequence[NDArray[np.float32]],
        count: int,
        allowed: Selection | None = None,
    ) -> list[tuple[NDArray[np.int64], NDArray[np.float32]]]:
        """Find the items whose vectors are nearest to each query's, in one call of FAISS.

        As many are found as are wanted if enough are allowed, best first, those of equal score in
        ascending order. The cosines are exact whatever the ANN keeps of a vector.
        """
        together = queries[0][None] if len(queries) == 1 else np.stack(queries)
        for stage in self.first_stages:
            if (found := stage.nearest(together, count, allowed)) is not None:
                return found
        raise AssertionError("the last first stage takes every search")

    def vectors(
        self, embeddings: Float[np.ndarray, "*queries d_match"], hubs: float = 1.0
    ) -> Float[np.ndarray, "*queries width"]:
        """Return the vectors whose inner products with stored ones are the corrected cosines.

        `hubs` is the share of the correction that applies: 1 for queries of the other modality.
        """
        if not self.entry.corrected:
            return embeddings
        return query_vectors(embeddings, self.entry.vector_dim, hubs)

    def corrected(
        self,
        align: NDArray[np.float32],
        query: Float[np.ndarray, "query_tokens dim"],
        modality: Modality,
    ) -> NDArray[np.float32]:
        """Subtract the hub correction from the alignment scores of all items."""
        if not self.entry.corrected:
            return align
        biases = self.embeddings[:, -1] * _bias_count(query, modality)
        return (align + biases).astype(np.float32, copy=False)

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
        neither repeat an item nor skip one. What lies beyond is ordered exactly. `head` has the
        candidates if they have been found.
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
        is_shared: True; see `Collection`.
    """

    base: StoredCollection
    changes: CollectionChanges | None = None
    filter: Filter | None = None
    is_shared: bool = field(default=True, init=False)

    @property
    def target(self) -> Target:
        return self.base.target

    @property
    def entry(self) -> CollectionEntry:
        return self.base.entry

    @property
    def count(self) -> int:
        return self.base.entry.count if self.changes is None else self.changes.count

    @property
    def scans_all(self) -> bool:
        return self.base.scan is not None

    @property
    def has_tokens(self) -> bool:
        return self.base.entry.token_count > 0

    @property
    def items(self) -> ItemStore | LiveItems:
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

    def order(self, query: FirstStageQuery) -> Ordered:
        return self.order_all([query])[0]

    def order_all(self, queries: Sequence[FirstStageQuery]) -> list[Ordered]:
        # The generation's items are found as by `StoredCollection.order`, added ones exactly.
        changes, base = self.changes, self.base
        selection = self.selection
        of_base, of_added = (selection, None) if changes is None else changes.split(selection)
        every = base.entry.count if changes is None else changes.count
        total = every if selection is None else selection.count
        vectors = [query.embedding for query in queries]
        if base.entry.corrected:
            vectors = [base.vectors(query.embedding, query.hubs) for query in queries]
        together: dict[int, list[NDArray[np.float32]]] = {}
        for query, vector in zip(queries, vectors, strict=True):
            together.setdefault(query.candidates, []).append(vector)
        found = {n: iter(base.candidates_of_all(v, n, of_base)) for n, v in together.items()}
        ordered: list[Ordered] = []
        for query, vector in zip(queries, vectors, strict=True):
            count, head = query.wanted, next(found[query.candidates])
            rows, match = base.order(vector, count, query.candidates, of_base, head)
            if changes is not None:
                added, of_new = exact_search(changes.embeddings, vector, count, of_added)
                added = added + changes.base_count
                rows, match = merge_orders(rows, match, added, of_new, count)
            upper, stage = None, query.second_stage
            if stage and stage.ranks and len(rows) >= LEAST_BOUNDED and changes is None:
                upper = self._upper_of(stage, rows)
            ordered.append(Ordered(rows, match, min(query.candidates, total), upper))
        return ordered

    def everything(self, queries: Sequence[ExhaustiveQuery]) -> list[Ordered]:
        scanned = self._scanned(queries)
        return [
            self._best_of(query, scanned[place]) if place in scanned else self._every(query)
            for place, query in enumerate(queries)
        ]

    def _scanned(self, queries: Sequence[ExhaustiveQuery]) -> dict[int, Scanned]:
        """Have all items scored at once for the queries, by place, that depend on nothing else."""
        scan, chosen, changes = self.base.scan, self.selection, self.changes
        if scan is None:
            return {}
        stages = {place: query.first.second_stage for place, query in enumerate(queries)}
        asked = {
            place: self._scan_query(queries[place], stage)
            for place, stage in stages.items()
            if stage is not None
        }
        if not asked:
            return {}
        of_base = chosen if changes is None else changes.split(chosen)[0]
        found = scan.best([*asked.values()], of_base)
        return {} if found is None else dict(zip(asked, found, strict=True))

    def _scan_query(self, query: ExhaustiveQuery, stage: SecondStageQuery) -> ScanQuery:
        base, asked = self.base, COMPARED_AS[stage.modality, self.target]
        is_corrected = base.entry.corrected and asked == stage.modality
        vector = base.vectors(query.first.embedding, query.first.hubs)
        biases = _bias_count(stage.tokens, asked) if is_corrected else 0
        return ScanQuery(query, vector, stage.tokens, asked, biases)

    def _best_of(self, query: ExhaustiveQuery, scanned: Scanned) -> Ordered:
        """Return what was found in the generation, and every added item."""
        base, changes, chosen = self.base, self.changes, self.selection
        vector = base.vectors(query.first.embedding, query.first.hubs)
        rows, match = scanned.rows, exact_scores(base.embeddings, vector, scanned.rows)
        of_added = match[:0]
        if changes is not None:
            allowed = changes.split(chosen)[1]
            added, of_added = exact_search(changes.embeddings, vector, None, allowed)
            added = added + base.entry.count
            others = ~np.isin(added, query.without)
            rows, of_added = np.append(rows, added[others]), of_added[others]
            match = np.append(match, of_added)

        def nearer(places: NDArray[np.int64]) -> NDArray[np.int64]:
            known = np.where(rows[places] < base.entry.count, rows[places], -1)
            count = scanned.nearer(known, match[places])
            return count + (of_added > match[places][:, None]).sum(axis=1)

        own = [row for row in query.without if chosen is None or row in chosen.bitmap]
        total = self.count if chosen is None else chosen.count
        return Ordered(rows, match, total - len(own), nearer=nearer)

    def _every(self, query: ExhaustiveQuery) -> Ordered:
        """Return all items, with bounds if the query says by what."""
        base, changes, built = self.base, self.changes, self.base.entry.count
        chosen, second_stage = self.selection, query.first.second_stage
        of_base, of_added = (chosen, None) if changes is None else changes.split(chosen)
        vector = base.vectors(query.first.embedding, query.first.hubs)
        rows, match = exact_search(base.embeddings, vector, None, of_base)
        upper = None
        if second_stage is not None:
            upper = np.full(len(rows), np.inf, dtype=np.float32)
            if base.bounds is not None and len(rows) > WORTH_BOUNDING * built:
                asked = COMPARED_AS[second_stage.modality, self.target]
                upper = base.bounds.get().upper(second_stage.tokens, asked)[rows]
        if changes is not None:
            added, added_match = exact_search(changes.embeddings, vector, None, of_added)
            rows, match = np.append(rows, added + built), np.append(match, added_match)
            if upper is not None:
                upper = np.append(upper, np.full(len(added), np.inf, dtype=np.float32))
        if upper is not None and second_stage is not None:
            upper = self._corrected(upper, second_stage.tokens, second_stage.modality, rows)
        every = Ordered(rows, match, len(rows), upper)
        if query.without:
            every = every.without(query.without)
        return every._replace(candidates=len(every.rows))

    def match(
        self,
        embeddings: Float[np.ndarray, "queries d_match"],
        hubs: Sequence[float],
        rows: NDArray[np.int64],
    ) -> Float[np.ndarray, "queries rows"]:
        if len(rows) == 0:
            return np.empty((len(embeddings), 0), dtype=np.float32)
        match = embeddings @ self.embeddings(rows.tolist()).T
        if self.entry.corrected:
            match -= np.outer(hubs, self._biases(rows)[:, 0]).astype(np.float32)
        return match

    def lengths(self, rows: NDArray[np.int64]) -> NDArray[np.int64]:
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
        return self.align_all([query], modality, [rows])[0]

    def align_all(
        self,
        queries: Sequence[Float[np.ndarray, "query_tokens dim"]],
        modality: Modality,
        rows: Sequence[NDArray[np.int64]],
    ) -> list[NDArray[np.float32]]:
        # The items of the generation are scored in one call.
        asked, changes = COMPARED_AS[modality, self.target], self.changes
        if changes is None:
            known = self.base.second_stage.align_all(queries, asked, rows)
        else:
            built = [of_query < self.base.entry.count for of_query in rows]
            of_base = [of_query[each] for of_query, each in zip(rows, built, strict=True)]
            known = self.base.second_stage.align_all(queries, asked, of_base)
            for place, (query, of_query, old) in enumerate(zip(queries, rows, built, strict=True)):
                if old.all():
                    continue
                both = np.empty(len(of_query), dtype=np.float32)
                both[old] = known[place]
                store = changes.tokens(of_query[~old])
                added = np.arange(store.count, dtype=np.int64)
                both[~old] = alignment_with_candidates(query, asked, store, added)
                known[place] = both
        if not self.entry.corrected:
            return known
        each = zip(known, queries, rows, strict=True)
        return [self._corrected(found, query, modality, of) for found, query, of in each]

    def raw_scores(
        self,
        query: SecondStageQuery,
        rows: NDArray[np.int64],
        match: NDArray[np.float32],
        align: NDArray[np.float32] | None,
        hubs: float = 1.0,
    ) -> RawScores:
        if not (self.entry.corrected and hubs):
            return RawScores(match, align)
        biases = self._biases(rows)
        if align is not None:
            align = align + biases[:, 1] * _bias_count(query.tokens, query.modality)
        return RawScores(match + np.float32(hubs) * biases[:, 0], align)

    def similarities(
        self,
        query: Float[np.ndarray, "query_tokens dim"],
        modality: Modality,
        rows: NDArray[np.int64],
    ) -> list[NDArray[np.float32]]:
        modality = COMPARED_AS[modality, self.target]
        built = rows < self.base.entry.count
        of_built = self.base.second_stage.similarities(query, modality, rows[built])
        if self.changes is None or built.all():
            return of_built
        store = self.changes.tokens(rows[~built])
        of_added = token_similarities(query, modality, store, np.arange(store.count))
        parts = iter(of_built), iter(of_added)
        return [next(parts[row >= self.base.entry.count]) for row in rows.tolist()]

    def tokens(self, row: int) -> Float[np.ndarray, "tokens dim"]:
        if self.changes is None or row < self.base.entry.count:
            return self.base.tokens.read(np.array([row])).values
        return self.changes.tokens(np.array([row])).read(np.array([0])).values

    def embedding(self, row: int) -> Float[np.ndarray, " dim"]:
        return self.embeddings([row])[0]

    def embeddings(self, rows: Sequence[int]) -> Float[np.ndarray, "rows dim"]:
        base, built = self.base.embeddings, self.base.entry.count
        added = base if self.changes is None else self.changes.embeddings
        vectors = [base[row] if row < built else added[row - built] for row in rows]
        return np.stack(vectors)[:, : self.entry.embedding_dim]

    def find_words(self, text: str) -> FoundWords:
        changes = self.changes
        indexes: list[tuple[WordIndex, int]] = [(self.base.items.words, self.base.entry.count)]
        if changes is not None:
            indexes.append((changes.added.words, changes.rows))
        removed = None if changes is None else changes.gone
        return find_rare_words(text, indexes, self.count, removed, self.selection)

    def stacks(self) -> Stacks:
        changes, built = self.changes, self.base.entry.count
        if self.target == "texts":
            rows = np.arange(built if changes is None else changes.rows)
            return Stacks(rows, {}, self.selection)
        if changes is None:
            return self.base.stacks.read(self.items, built, built, self.selection)
        return self.base.stacks.read(
            self.items, built, changes.rows, self.selection, changes.gone, changes.added
        )

    def list_items(self, order: ListOrder, after_id: str | None, count: int) -> ListedPage:
        return list_items(self._listed(), order, after_id, count)

    def list_fields(self) -> dict[str, list[FieldValues]]:
        return list_fields(self._listed())

    def _listed(self) -> Listed:
        rows = self.count if self.changes is None else self.changes.rows
        return Listed(
            target=self.target,
            fields=self.entry.filter_fields,
            stored=self.base.items,
            changes=self.changes,
            items=self.items,
            rows=rows,
            total=self.count if self.selection is None else self.selection.count,
            selection=self.selection,
            select=self._select,
            find_stacks=self.stacks,
            filter=self.filter,
        )

    def _select(self, filter: Filter | None) -> Selection | None:
        """Return the live rows that pass another filter."""
        return replace(self, filter=filter).selection

    def _upper_of(
        self, query: SecondStageQuery, rows: NDArray[np.int64]
    ) -> NDArray[np.float32] | None:
        """Return bounds of the alignment scores of some rows if they are at hand."""
        bounds = self.base.bounds
        if bounds is None:
            return None
        upper = bounds.of_candidates(query.tokens, query.modality, rows)
        return None if upper is None else self._corrected(upper, query.tokens, query.modality, rows)

    def _corrected(
        self,
        align: NDArray[np.float32],
        query: Float[np.ndarray, "query_tokens dim"],
        modality: Modality,
        rows: NDArray[np.int64],
    ) -> NDArray[np.float32]:
        """Subtract the hub correction from alignment scores; regions are compared without."""
        if not self.base.entry.corrected or COMPARED_AS[modality, self.target] != modality:
            return align
        return align - self._biases(rows)[:, 1] * _bias_count(query, modality)

    def _biases(self, rows: NDArray[np.int64]) -> Float[np.ndarray, "rows 2"]:
        """Return the biases of the items' cosines, and of their alignment scores by word."""
        added = None if self.changes is None else self.changes.embeddings
        return stored_biases(self.base.embeddings, added, self.entry.embedding_dim, rows)


def _bias_count(query: Float[np.ndarray, "query_tokens dim"], modality: Modality) -> int:
    """Return how often an alignment score contains the bias: by word, or once for a photo."""
    return len(query) if modality == "text" else 1
