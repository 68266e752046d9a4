"""From a query and its options to a plan: all that the stages of one search read."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from aladin_index.items.stacks import Stacks
from aladin_index.items.words import FoundWords
from aladin_index.search.box_query import LazyEmbedder, check_boxed, region_fusion, take_box
from aladin_index.search.collection import (
    Collection,
    FirstStageQuery,
    SearchBackend,
    SecondStageQuery,
)
from aladin_index.search.lexical import library_weight
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

# How many times as many items as hits are looked at first where photos are stacked, and again where
# they had too few stacks.
_FURTHER = 4


class Plan(NamedTuple):
    """What the stages of one search need.

    Attributes:
        options: How to search.
        collection: The searched collection, restricted to items that pass the filter.
        terms: How each term scores the candidates.
        is_joined: Whether terms are joined: their scores have a sum, and hits no probability.
        reranks: Whether the total decides the order, block by block, and not the cosines.
        first: What the first stage is asked for one block of candidates; with a second stage if
            one term chooses them.
        is_exhaustive: Whether all items are candidates.
        lacks_tokens: Whether the collection has no tokens for a second stage that was asked for.
        calibration: What would judge hits of a plain query, or None if there is nothing.
        pool_size: Number of the first stage's best items that hits are judged against.
        own_rows: Rows of the query's own items, which must not be among its hits.
        words: Items that have rare words of the query, or None if it is not searched by words.
        lexical: Weight of these words.
        stacks: Stacks of photos that are one hit each, or None if each photo is a hit.
        page: Places of the items that the page is chosen from, in the order of the hits.
        received_s: When the query was received, by `time.monotonic`.
        deadline_s: Time by which the second stage has to end, or None.
    """

    options: SearchOptions
    collection: Collection
    terms: Sequence[TermPlan]
    is_joined: bool
    reranks: bool
    first: FirstStageQuery
    is_exhaustive: bool
    lacks_tokens: bool
    calibration: Calibration | None
    pool_size: int
    own_rows: Sequence[int]
    words: FoundWords | None
    lexical: float
    stacks: Stacks | None
    page: slice
    received_s: float
    deadline_s: float | None

    @property
    def direction(self) -> Direction:
        """Direction of the search: that of the first term."""
        return DIRECTION_OF[self.terms[0].stage.modality]

    def reaching_further(self) -> Plan:
        """Return the plan of the same page, chosen from more items."""
        return self._replace(page=slice(0, _FURTHER * self.page.stop))

    def nearest(self, count: int) -> FirstStageQuery:
        """Return what the collection is asked for the nearest items, without bounds."""
        stage = self.first.second_stage
        stage = None if stage is None else stage._replace(ranks=False)
        return self.first._replace(wanted=count, candidates=count, second_stage=stage)

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
        """Check a query and its options, and collect what the stages need."""
        # Without training, regions say nothing: they are aligned only if a weight is given for it.
        means = self._is_trained or options.fusion is not None
        terms = [self._term(term, collection, options, means=means) for term in query]
        is_joined, stage = query[0].role is not None, _first_stage(terms, options)
        embedding, hubs = terms[0].embedding, terms[0].hubs
        if is_joined:
            check_joined(options)
            terms = weighed(terms)
            embedding, hubs = joined_embedding(terms)
            terms = move_words(terms, options)
        crosses, aligns = True in [t.crosses for t in terms], True in [t.aligns for t in terms]
        is_judged = self._calibration is not None and crosses
        lexical = self._lexical_weight(query, options)
        words = collection.find_words(query[0].text or "") if lexical else None
        if options.lexical is None and words is not None and not len(words.rows):
            words = None
        stacks = collection.stacks() if options.stack else None
        stop = options.offset + options.k
        block, is_exhaustive = self._block(terms, collection, options, words)
        timeout_ms = options.timeout_ms
        return Plan(
            options=options,
            collection=collection,
            terms=terms,
            is_joined=is_joined,
            reranks=is_joined or (options.rerank and aligns),
            first=FirstStageQuery(embedding, block, block, stage, hubs),
            is_exhaustive=is_exhaustive,
            lacks_tokens=options.rerank and crosses and means and not aligns,
            calibration=self._calibration if is_judged else None,
            pool_size=POOL if is_judged and not is_joined and query[0].box is None else 0,
            own_rows=_own_rows(query, collection) if not all(t.crosses for t in terms) else (),
            words=words,
            lexical=lexical,
            stacks=stacks,
            page=slice(options.offset, stop) if stacks is None else slice(0, _FURTHER * stop),
            received_s=received_s,
            deadline_s=None if timeout_ms is None else received_s + timeout_ms / 1000,
        )

    def _lexical_weight(self, query: Query, options: SearchOptions) -> float:
        """Return the weight of words; by default those of a text count in a library alone."""
        if options.lexical is not None:
            return options.lexical
        lead = query[0]
        is_text = lead.role is None and lead.text is not None and not lead.is_stored
        return library_weight(lead.text or "") if is_text and self._index.follows_folders else 0.0

    def part_of(
        self, term: Term, collection: Collection, options: SearchOptions | None = None
    ) -> Term:
        """Return the part of a photo that its box holds, as a term."""
        options = options or SearchOptions()
        is_aligned = self._is_trained or options.fusion is not None
        check_boxed(term, options, collection, is_aligned=is_aligned)
        is_crossing = collection.target != "images"
        return take_box(term, self._index, self._embedder, is_crossing=is_crossing)

    def _term(
        self, term: Term, collection: Collection, options: SearchOptions, *, means: bool
    ) -> TermPlan:
        crosses = term.modality != MODALITY_OF[collection.target]
        fusion = self._fusions[DIRECTION_OF[term.modality]]
        if term.box is not None:
            term = self.part_of(term, collection, options)
            fusion = fusion if crosses else region_fusion(term)
        _check_fit(term, collection, options, crosses=crosses)
        if options.min_probability is not None:
            self._check_judged(crosses=crosses)
        encoding, compares = term.encoding, crosses or term.box is not None
        return TermPlan(
            term=term,
            embedding=encoding.embedding[0],
            stage=SecondStageQuery(encoding.tokens[0][encoding.mask[0]], term.modality),
            aligns=compares and means and collection.entry.token_count > 0,
            crosses=crosses,
            hubs=float(crosses),
            fusion=fusion,
            weight=fusion.weight if options.fusion is None else float(options.fusion),
        )

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
        self,
        terms: Sequence[TermPlan],
        collection: Collection,
        options: SearchOptions,
        words: FoundWords | None,
    ) -> tuple[int, bool]:
        """Return the number of candidates of a block, and whether it is all items.

        An index that has grown too large to be searched exhaustively by default takes candidates.
        """
        given, is_exhaustive = options.candidates, False
        asked = (given or collection.entry.ann.asked) in ("exhaustive", EXACT_ALIGN)
        if asked and options.rerank and any(each.aligns for each in terms):
            # Totals of several terms and of words are computed on the processor.
            is_scanned = collection.scans_all and len(terms) == 1 and words is None
            count = collection.count
            is_exhaustive = is_scanned or count <= MAX_ITEMS
            if given == "exhaustive" and not is_exhaustive:
                raise InputError(
                    f"candidates: expected a number, got exhaustive, which takes an index of at "
                    f"most {MAX_ITEMS:,} items; this one has {count:,}"
                )
        if isinstance(given, int):
            return given, is_exhaustive
        usual = self._candidates[collection.target]
        has_moved = given is None and any(each.is_moved for each in terms)
        return max(usual, MOVED_CANDIDATES) if has_moved else usual, is_exhaustive


def _check_fit(
    term: Term, collection: Collection, options: SearchOptions, *, crosses: bool
) -> None:
    entry, encoding = collection.entry, term.encoding
    expected, shape = (1, entry.embedding_dim), tuple(encoding.embedding.shape)
    if shape != expected:
        raise ShapeError(f"embedding {expected}", shape)
    if encoding.tokens.shape[2] != entry.token_dim:
        raise ShapeError(f"tokens (1, any, {entry.token_dim})", tuple(encoding.tokens.shape))
    if options.explain and crosses and term.modality == "text" and term.text is None:
        raise InputError("explain: expected the query's text, got none")
    if options.lexical and term.text is None:
        raise InputError("lexical: expected a query of one text, got none")


def _first_stage(terms: Sequence[TermPlan], options: SearchOptions) -> SecondStageQuery | None:
    """Return what the items of the first stage will be aligned with, if one term chooses them."""
    choosing = [each for each in terms if each.term.role != "not"]
    if len(choosing) != 1 or not choosing[0].aligns:
        return None
    [term] = choosing
    # Bounds are those of words with regions: regions that search photos have none.
    ranks = term.term.role is None and options.rerank and term.crosses and term.weight != 0
    return SecondStageQuery(term.stage.tokens, term.stage.modality, ranks)


def _own_rows(query: Query, collection: Collection) -> list[int]:
    ids = [term.own_id for term in query if term.modality == MODALITY_OF[collection.target]]
    known = [own_id for own_id in ids if own_id is not None]
    found = collection.items.by_ids(known) if known else ()
    return [item.row for item in found if item is not None]
