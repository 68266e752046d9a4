"""The first stage of a search: the candidates of a page, and the pool for judging hits."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from jaxtyping import Float
from numpy.typing import NDArray

from aladin_index.items.filters import Exists, Filter, leaves
from aladin_index.items.words import FoundWords
from aladin_index.search.collection import (
    Collection,
    FirstStageQuery,
    Ordered,
    SearchBackend,
    SecondStageQuery,
)
from aladin_index.search.file_collection import FileCollection
from aladin_index.search.options import SearchOptions
from aladin_index.search.query import Term
from aladin_index.search.results import Role
from aladin_network.calibration.calibration import Calibration
from aladin_network.errors import AladinError, InputError, ShapeError
from aladin_network.scoring.fusion import DirectionFusion
from aladin_network.types import Direction, Modality, Target

# Each field costs a search, so only the first fields of a long filter are looked up.
_MAX_FIELDS = 5


class ValidPart(NamedTuple):
    """A part of a query with what the stages need for it.

    Attributes:
        role: What the part says of the hits.
        weight: Factor of the part's score in the hits' scores; negative if it counts against them.
        search: The part as a search of its own.
        is_moved: Whether examples have moved the words of the part.
    """

    role: Role
    weight: float
    search: ValidSearch
    is_moved: bool = False


@dataclass(frozen=True, kw_only=True)
class ValidSearch:
    """A query with valid options, and the parts of the index that the stages need.

    Attributes:
        query: The query.
        modality: Modality of the query.
        target: The searched collection.
        options: How to search.
        candidates: Candidates that the first stage passes to the second at a time.
        filter: Filter that hits have to pass.
        collection: The searched collection, restricted to items that pass the filter.
        embedding: (d_match,) float32, the query's embedding, L2-normalised; with what the biases
            of a corrected collection are multiplied by.
        tokens: (query_tokens, d_align) float32, the query's real tokens.
        second_stage: What the second stage needs, or None if the embeddings decide alone.
        is_crossing: Whether the query and the items are of different modalities, so that they can
            be aligned.
        is_aligned: Whether the second stage is meant to run: its model was trained to align, or
            the search names a weight of the fusion.
        reranks: Whether the second stage decides the order.
        is_exhaustive: Whether it decides the order of all items, without candidates.
        direction: Direction of the search.
        fusion: Constants of the fusion in this direction.
        weight: Weight of the alignment score.
        calibration: Source of probabilities, or None if hits have none.
        deadline_s: Time by which the second stage has to end, by `time.monotonic`, or None.
        pool_size: Number of the first stage's best items that hits are judged against.
        own_rows: Rows of the query itself, which must not be among its hits.
        received_s: When the query was received, by `time.monotonic`.
        parts: Parts of a query of several, which decide the order together; empty for one query.
        words: Items that have rare words of the query, or None if it is not searched by words.
    """

    query: Term
    modality: Modality
    target: Target
    options: SearchOptions
    candidates: int
    filter: Filter | None
    collection: Collection
    embedding: NDArray[np.float32]
    tokens: Float[np.ndarray, "query_tokens dim"]
    second_stage: SecondStageQuery | None
    is_crossing: bool
    is_aligned: bool
    reranks: bool
    is_exhaustive: bool
    direction: Direction
    fusion: DirectionFusion
    weight: float
    calibration: Calibration | None
    deadline_s: float | None
    pool_size: int
    own_rows: tuple[int, ...]
    received_s: float
    parts: tuple[ValidPart, ...] = ()
    words: FoundWords | None = None

    def word_counts(self, rows: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return for each row the number of tokens of the text: that of the query or of the row.

        Where photos are searched by regions, these count in place of words.
        """
        if self.modality != "text" and self.is_crossing:
            return self.collection.lengths(rows)
        return np.full(len(rows), len(self.tokens), dtype=np.int64)


def check_query(
    query: Term,
    options: SearchOptions,
    collection: Collection,
    calibration: Calibration | None,
    *,
    is_crossing: bool,
) -> None:
    """Check that a query and its options fit the searched collection.

    Args:
        query: Encoded query.
        options: Options within their bounds.
        collection: Searched collection.
        calibration: Calibration of the index, or None.
        is_crossing: See `ValidSearch`.

    Raises:
        ShapeError: If the query is not one item of the index's dimensions.
        InputError: If a text query is to be explained without its text, words are to be searched
            without one, or `min_probability` is given although hits have no probability.
    """
    entry, encoding = collection.entry, query.encoding
    expected = (1, entry.embedding_dim)
    if tuple(encoding.embedding.shape) != expected:
        raise ShapeError(f"embedding {expected}", tuple(encoding.embedding.shape))
    if encoding.tokens.shape[2] != entry.token_dim:
        raise ShapeError(f"tokens (1, any, {entry.token_dim})", tuple(encoding.tokens.shape))
    if options.explain and is_crossing and query.modality == "text" and query.text is None:
        raise InputError("explain: expected the query's text, got none")
    if options.lexical and query.text is None:
        raise InputError("lexical: expected a query of one text, got none")
    if options.min_probability is not None:
        if calibration is None:
            raise InputError(
                "min_probability: the index is not calibrated, its hits have no probability; "
                "aladin calibrate fits them"
            )
        if not is_crossing:
            raise InputError(
                "min_probability: only images for a text and texts for an image have a probability"
            )


AlignScorer = Callable[[NDArray[np.int64]], NDArray[np.float32]]


class Ranking(NamedTuple):
    """Rows in the order of an answer, with the scores and ranks of both stages.

    Attributes:
        rows: (hits,) int64.
        scores: (hits,) scores that decide the order.
        match: (hits,) cosines of the embeddings.
        match_ranks: (hits,) ranks by `match`, counted from 1.
        align: (hits,) alignment scores, or None between items of one modality.
        align_ranks: (hits,) ranks by `align`, counted from 1, or None as `align`.
    """

    rows: NDArray[np.int64]
    scores: NDArray[np.float32]
    match: NDArray[np.float32]
    match_ranks: NDArray[np.int64]
    align: NDArray[np.float32] | None = None
    align_ranks: NDArray[np.int64] | None = None

    def take(self, places: NDArray[np.int64] | slice) -> Ranking:
        """Return the rows at some places."""
        return Ranking(*(None if part is None else part[places] for part in self))  # pyright: ignore[reportArgumentType]


class QueryPool(NamedTuple):
    """The first stage's best items, against which hits are judged, regardless of the page.

    Attributes:
        rows: (pool,) int64, best first.
        match: (pool,) float32, their cosines.
        heads_ranking: Whether the second stage orders them anyway, as the first candidates.
    """

    rows: NDArray[np.int64]
    match: NDArray[np.float32]
    heads_ranking: bool

    def align(self, align: NDArray[np.float32] | None, score: AlignScorer) -> NDArray[np.float32]:
        """Return the alignment scores of the pool.

        Args:
            align: Scores of all candidates, in the order of the first stage, if they are known.
            score: Scores rows that are not among them.
        """
        if self.heads_ranking and align is not None:
            return align[: len(self.rows)]
        return score(self.rows) if len(self.rows) else np.empty(0, dtype=np.float32)


class Found(NamedTuple):
    """The first stage's result for one page.

    Attributes:
        rows: (found,) int64, best first; whole blocks of candidates if they are re-ranked.
        match: (found,) float32, their cosines.
        start: Place of the first row in the order of all items.
        page: Places of the page's hits among the rows.
        pool: Items that hits are judged against.
        candidates: Candidates of a block.
        is_empty: Whether the first stage found no item at all.
        upper: (found,) float32, upper bounds of the alignment scores, or None without bounds.
    """

    rows: NDArray[np.int64]
    match: NDArray[np.float32]
    start: int
    page: slice
    pool: QueryPool
    candidates: int
    is_empty: bool
    upper: NDArray[np.float32] | None = None


def retrieve(searches: Sequence[ValidSearch]) -> list[Found]:
    """Find the candidates of pages; searches that share a collection are answered together.

    Beyond the first block of candidates follow further blocks of the same size, so the order does
    not depend on the size of a page.

    Raises:
        InputError: If more items are requested than the vector database can find.
        EngineUnavailableError: If the vector database does not respond.
    """
    found: list[Found | None] = [None] * len(searches)
    for group in sharing(searches):
        wanted: list[FirstStageQuery] = []
        for place in group:
            search = searches[place]
            block, stop = search.candidates, search.options.offset + search.options.k
            own, first = len(search.own_rows), block
            if search.reranks:
                stop = -(-stop // block) * block  # whole blocks
                first += own  # candidates: what lies beyond is compared exactly, with every item
            # The pool does not depend on the page size, and is available for later pages, too.
            # More for the query's own items; a longer order begins with the shorter one.
            count = max(stop, min(search.pool_size, block)) + own
            wanted.append(FirstStageQuery(search.embedding, count, first, search.second_stage))
        collection = searches[group[0]].collection
        if isinstance(collection, FileCollection):
            ordered = collection.order_all(wanted)
        else:  # a vector database, whose collections are not shared
            ordered = [collection.order(*each) for each in wanted]
        for place, of_search in zip(group, ordered, strict=True):
            found[place] = _page(searches[place], of_search)
    return [each for each in found if each is not None]


def sharing(searches: Sequence[ValidSearch]) -> list[list[int]]:
    """Return the places of the searches that have a collection in common."""
    groups: dict[int, list[int]] = {}
    for place, search in enumerate(searches):
        groups.setdefault(id(search.collection), []).append(place)
    return list(groups.values())


def _page(search: ValidSearch, ordered: Ordered) -> Found:
    """Cut the page out of an order."""
    first, last = search.options.offset, search.options.offset + search.options.k
    block = search.candidates
    if search.own_rows:
        others = ~np.isin(ordered.rows, search.own_rows)
        ordered = ordered._replace(
            rows=ordered.rows[others], match=ordered.match[others], upper=None
        )
    # There may be fewer items than the page, or the places before it, require.
    stop = -(-last // block) * block if search.reranks else last
    first, last, stop = (min(place, len(ordered.rows)) for place in (first, last, stop))
    start = first // block * block if search.reranks and first < last else first
    if first == last:
        stop = first
    return Found(
        rows=ordered.rows[start:stop],
        match=ordered.match[start:stop],
        start=start,
        page=slice(first - start, last - start),
        pool=find_pool(search, ordered, ranks_head=search.reranks and start == 0 < stop),
        candidates=min(ordered.candidates, block),
        is_empty=len(ordered.rows) == 0,
        upper=None if ordered.upper is None else ordered.upper[start:stop],
    )


def find_pool(search: ValidSearch, ordered: Ordered, *, ranks_head: bool) -> QueryPool:
    """Take the first stage's best items for the pool, or all if there are fewer.

    Args:
        search: The search.
        ordered: At least as many items as the pool has, unless a block has fewer candidates.
        ranks_head: Whether the second stage orders the first candidates.
    """
    size = search.pool_size
    if search.candidates < size:
        # Search again: fewer candidates must not change the pool, whose scores the calibration was
        # fitted to.
        second_stage = search.second_stage and search.second_stage._replace(ranks=False)
        pool = search.collection.order(search.embedding, size, size, second_stage)
        return QueryPool(pool.rows, pool.match, heads_ranking=False)
    return QueryPool(ordered.rows[:size], ordered.match[:size], heads_ranking=ranks_head)


def unknown_fields(
    index: SearchBackend, search: ValidSearch, names: Sequence[str] = ()
) -> list[str]:
    """Return the fields that have no comparable value in any item, in their order.

    Args:
        index: Searched index.
        search: Search whose filter no item passed, or whose hits are sorted.
        names: Fields to look up; without any, those of the filter.
    """
    if not names and search.filter is not None:
        names = [test.field for test in leaves(search.filter)]
    unknown: list[str] = []
    with suppress(AladinError):  # the search is answered even if an engine rejects this
        for name in list(dict.fromkeys(names))[:_MAX_FIELDS]:
            collection = index.collection(search.target, Exists(name))
            if len(collection.order(search.embedding, 1, 1).rows) == 0:
                unknown.append(name)
    return unknown
