"""From a query and its options to a plan: all that the stages of one search read."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from aladin_index.items.words import FoundWords
from aladin_index.search.box_query import LazyEmbedder, check_boxed, region_fusion, take_box
from aladin_index.search.collection import (
    Collection,
    FirstStageQuery,
    SearchBackend,
    SecondStageQuery,
)
from aladin_index.search.options import MAX_ITEMS, SearchOptions
from aladin_index.search.query import Query, Term
from aladin_index.search.terms import (
    MOVED_CANDIDATES,
    TermPlan,
    check_joined,
    joined_embedding,
    move_words,
    weighed,
)
from aladin_index.settings import EXACT_ALIGN
from aladin_network.calibration.calibration import Calibration
from aladin_network.calibration.judging import POOL
from aladin_network.errors import InputError, ShapeError
from aladin_network.types import DIRECTION_OF, MODALITY_OF, Direction


@dataclass(frozen=True, kw_only=True)
class Plan:
    """What the stages of one search need.

    Attributes:
        query: The query.
        options: How to search.
        collection: The searched collection, restricted to items that pass the filter.
        terms: How each term scores the candidates.
        embedding: (d_match,) float32, what the first stage compares, L2-normalised.
        hubs: Share of the hub correction that applies to it.
        candidates: Candidates that the first stage passes to the second at a time.
        is_exhaustive: Whether all items are candidates.
        lacks_tokens: Whether the collection has no tokens for a second stage that was asked for.
        calibration: What would judge hits of a plain query, or None if there is nothing.
        own_rows: Rows of the query's own items, which must not be among its hits.
        words: Items that have rare words of the query, or None if it is not searched by words.
        received_s: When the query was received, by `time.monotonic`.
    """

    query: Query
    options: SearchOptions
    collection: Collection
    terms: tuple[TermPlan, ...]
    embedding: NDArray[np.float32]
    hubs: float
    candidates: int
    is_exhaustive: bool
    lacks_tokens: bool
    calibration: Calibration | None
    own_rows: list[int]
    words: FoundWords | None
    received_s: float

    @property
    def is_joined(self) -> bool:
        """Whether terms are joined: their scores have a sum, and hits no probability."""
        return self.query[0].role is not None

    @property
    def reranks(self) -> bool:
        """Whether the total decides the order, block by block, and not the cosines."""
        return self.is_joined or (self.options.rerank and self.terms[0].aligns)

    @property
    def direction(self) -> Direction:
        """Direction of the search: that of the first term."""
        return DIRECTION_OF[self.terms[0].term.modality]

    @property
    def pool_size(self) -> int:
        """Number of the first stage's best items that hits are judged against."""
        is_judged = self.calibration is not None and not self.is_joined
        return POOL if is_judged and self.query[0].box is None else 0

    @property
    def deadline_s(self) -> float | None:
        """Time by which the second stage has to end, by `time.monotonic`, or None."""
        timeout_ms = self.options.timeout_ms
        return None if timeout_ms is None else self.received_s + timeout_ms / 1000

    @property
    def second_stage(self) -> SecondStageQuery | None:
        """What the items of the first stage will be aligned with, if one term chooses them."""
        (*others, chosen) = (each for each in self.terms if each.term.role != "not")
        if others or not chosen.aligns:
            return None
        # Bounds are those of words with regions: regions that search photos have none.
        ranks = not self.is_joined and self.reranks and chosen.crosses and chosen.weight != 0
        return chosen.stage._replace(ranks=ranks)

    def nearest(self, count: int, candidates: int) -> FirstStageQuery:
        """Return what the collection is asked for the first `count` items."""
        return FirstStageQuery(self.embedding, count, candidates, self.second_stage, self.hubs)

    def word_counts(self, rows: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return for each row the number of tokens of the text: that of the query or of the row.

        Where photos are searched by regions, these count in place of words.
        """
        lead = self.terms[0]
        if lead.term.modality != "text" and lead.crosses:
            return self.collection.lengths(rows)
        return np.full(len(rows), len(lead.stage.tokens), dtype=np.int64)


class Planner:
    """Plans the searches of one open generation; thread-safe."""

    def __init__(self, index: SearchBackend) -> None:
        """Keep what all searches have in common."""
        manifest = index.manifest
        fusion = manifest.fusion(index.checkpoint.fusion)
        self._index = index
        self._calibration = manifest.calibration
        self._candidates = {target: manifest.candidates(target) for target in manifest.targets}
        self._fusions = {direction: fusion.of(direction) for direction in DIRECTION_OF.values()}
        self._is_trained = index.checkpoint.alignment_trained
        self._embedder = LazyEmbedder(index)

    def plan(
        self, query: Query, collection: Collection, options: SearchOptions, received_s: float
    ) -> Plan:
        """Check a query and its options, and collect what the stages need.

        Args:
            query: Encoded query.
            collection: Collection to search, restricted by the filter of the options.
            options: How to search, within their bounds.
            received_s: When the query was received, by `time.monotonic`.

        Raises:
            InputError: If an option does not fit the query or the index.
            ShapeError: If a term is not one item of the index's dimensions.
            EngineUnavailableError: If the vector database does not respond.
        """
        terms = [self._term(term, collection, options) for term in query]
        embedding, hubs = terms[0].embedding, terms[0].hubs
        if query[0].role is not None:
            check_joined(query, options)
            terms = weighed(terms)
            embedding, hubs = joined_embedding(terms)
            terms = move_words(terms, options)
        crosses = any(each.crosses for each in terms)
        lacks = options.rerank and crosses and self._aligns(options) and not collection.has_tokens
        return Plan(
            query=query,
            options=options,
            collection=collection,
            terms=tuple(terms),
            embedding=embedding,
            hubs=hubs,
            candidates=self._block(terms, collection, options),
            is_exhaustive=_is_exhaustive(terms, collection, options),
            lacks_tokens=lacks,
            calibration=self._calibration if crosses else None,
            own_rows=_own_rows(terms, collection),
            words=collection.find_words(query[0].text or "") if options.lexical else None,
            received_s=received_s,
        )

    def part_of(
        self, term: Term, collection: Collection, options: SearchOptions | None = None
    ) -> Term:
        """Return the part of a photo that its box holds, as a term.

        Raises:
            InputError: If the collection cannot be searched by this box.
            EngineUnavailableError: If the vector database does not respond.
        """
        options = options or SearchOptions()
        check_boxed(term, options, collection, is_aligned=self._aligns(options))
        is_crossing = collection.target != "images"
        return take_box(term, self._index, self._embedder, is_crossing=is_crossing)

    def _term(self, term: Term, collection: Collection, options: SearchOptions) -> TermPlan:
        crosses = term.modality != MODALITY_OF[collection.target]
        fusion = self._fusions[DIRECTION_OF[term.modality]]
        if term.box is not None:
            term = self.part_of(term, collection, options)
            fusion = fusion if crosses else region_fusion(term)
        _check_fit(term, collection, options, crosses=crosses)
        if options.min_probability is not None:
            self._check_judged(crosses=crosses)
        compares = (crosses or term.box is not None) and self._aligns(options)
        return TermPlan(
            term=term,
            stage=SecondStageQuery(term.encoding.item_tokens(0), term.modality),
            aligns=compares and collection.has_tokens,
            crosses=crosses,
            fusion=fusion,
            weight=fusion.weight if options.fusion is None else float(options.fusion),
        )

    def _aligns(self, options: SearchOptions) -> bool:
        """Whether alignment means anything: it was trained, or a weight is given for it."""
        return self._is_trained or options.fusion is not None

    def _check_judged(self, *, crosses: bool) -> None:
        if self._calibration is None:
            raise InputError(
                "min_probability: the index is not calibrated, its hits have no probability; "
                "aladin calibrate fits them"
            )
        if not crosses:
            raise InputError(
                "min_probability: only images for a text and texts for an image have a probability"
            )

    def _block(
        self, terms: Sequence[TermPlan], collection: Collection, options: SearchOptions
    ) -> int:
        """Return the number of candidates of a block."""
        if isinstance(options.candidates, int):
            return options.candidates
        usual = self._candidates[collection.target]
        has_moved = options.candidates is None and any(each.is_moved for each in terms)
        return max(usual, MOVED_CANDIDATES) if has_moved else usual


def _check_fit(
    term: Term, collection: Collection, options: SearchOptions, *, crosses: bool
) -> None:
    """Check that a term has the dimensions of the index, and the text that the options need."""
    entry, encoding = collection.entry, term.encoding
    expected = (1, entry.embedding_dim)
    if tuple(encoding.embedding.shape) != expected:
        raise ShapeError(f"embedding {expected}", tuple(encoding.embedding.shape))
    if encoding.tokens.shape[2] != entry.token_dim:
        raise ShapeError(f"tokens (1, any, {entry.token_dim})", tuple(encoding.tokens.shape))
    if options.explain and crosses and term.modality == "text" and term.text is None:
        raise InputError("explain: expected the query's text, got none")
    if options.lexical and term.text is None:
        raise InputError("lexical: expected a query of one text, got none")


def _is_exhaustive(
    terms: Sequence[TermPlan], collection: Collection, options: SearchOptions
) -> bool:
    """Whether the second stage orders all items; an index that has grown too large is not."""
    asked = (options.candidates or collection.entry.ann.asked) in ("exhaustive", EXACT_ALIGN)
    if not (asked and options.rerank and any(each.aligns for each in terms)):
        return False
    if options.candidates == "exhaustive" and collection.count > MAX_ITEMS:
        raise InputError(
            f"candidates: expected a number, got exhaustive, which takes an index of at most "
            f"{MAX_ITEMS:,} items; this one has {collection.count:,}"
        )
    return collection.count <= MAX_ITEMS


def _own_rows(terms: Sequence[TermPlan], collection: Collection) -> list[int]:
    ids = [each.term.own_id for each in terms if not each.crosses]
    known = [own_id for own_id in ids if own_id is not None]
    if not known:
        return []
    return [item.row for item in collection.items.by_ids(known) if item is not None]
