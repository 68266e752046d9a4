"""Share of the exhaustive second stage that two-stage search keeps, and its queries.

An item of the exhaustive top that is among the candidates is in the top of these as well, because
it has fewer rivals there. So the share that two-stage search keeps of the exhaustive top is the
share of it that the first stage finds; with an exact first stage, an item's rank by cosine is the
number of candidates needed to keep it.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from aladin_index.ann.ann_index import AnnIndex
from aladin_index.ann.exact_search import largest
from aladin_index.ann.first_stage import retrieve
from aladin_index.ann.hub_correction import without_biases
from aladin_index.search.file_collection import StoredCollection
from aladin_index.search.order import ordered_page, ranks_at
from aladin_index.tokens.maxsim import alignment_with_all, alignment_with_candidates
from aladin_network.graphs.threads import compute_threads, set_compute_threads
from aladin_network.scoring.encoding import Encoding
from aladin_network.scoring.fusion import DirectionFusion
from aladin_network.types import Modality, NullProgress, Progress

# Scores of all items that are held in memory at a time, for both stages.
_SCORES_AT_A_TIME = 2**26
_TIMED_QUERIES = 50


class TuneQueries(NamedTuple):
    """Encoded queries of one modality.

    Attributes:
        modality: Modality of all queries.
        embeddings: (queries, d_match) float32, L2-normalised.
        tokens: Real tokens of each query, (any, d_align) float32.
    """

    modality: Modality
    embeddings: NDArray[np.float32]
    tokens: list[NDArray[np.float32]]


def queries_of_encoding(encoding: Encoding, modality: Modality) -> TuneQueries:
    """Convert the encoding of some texts or photos to queries."""
    return TuneQueries(
        modality,
        np.ascontiguousarray(encoding.embedding),
        [encoding.item_tokens(row) for row in range(encoding.size)],
    )


def stored_queries(collection: StoredCollection, count: int) -> TuneQueries:
    """Sample queries from an index's stored items; deterministic."""
    chosen = np.random.default_rng(0).permutation(collection.entry.count)[:count]
    rows = np.sort(chosen).astype(np.int64)
    block = collection.tokens.read(rows)
    tokens = np.split(block.values, np.cumsum(block.lengths)[:-1])
    embeddings = without_biases(collection.embeddings[rows], collection.entry.embedding_dim)
    return TuneQueries("image" if collection.target == "images" else "text", embeddings, tokens)


class ExhaustiveTops(NamedTuple):
    """The best items of each query when the second stage scores every item.

    Attributes:
        rows: (queries, at) int64, best first.
        places: (queries, at) int64, of these items in the order of the first stage, from 0.
    """

    rows: NDArray[np.int64]
    places: NDArray[np.int64]


def exhaustive_tops(
    collection: StoredCollection,
    queries: TuneQueries,
    fusion: DirectionFusion,
    at: int,
    progress: Progress | None = None,
) -> ExhaustiveTops:
    """Score every item for every query."""
    count = collection.entry.count
    group = max(1, _SCORES_AT_A_TIME // count)
    rows: list[NDArray[np.int64]] = []
    places: list[NDArray[np.int64]] = []
    for start in range(0, len(queries.tokens), group):
        part = slice(start, start + group)
        align = alignment_with_all(
            queries.tokens[part], queries.modality, collection.tokens, progress or NullProgress()
        )
        for place, aligned in enumerate(align, start=start):
            match = collection.embeddings @ queries.embeddings[place]
            tokens = queries.tokens[place]
            fused = fusion.combine(collection.corrected(aligned, tokens, queries.modality), match)
            top = largest(fused, at)
            rows.append(top)
            places.append(ranks_at(top, match) - 1)
    return ExhaustiveTops(np.stack(rows), np.stack(places))


def fewest_candidates(tops: ExhaustiveTops, fidelity: float) -> int:
    """Return the fewest candidates of an exact first stage that keep a share of top items."""
    needed = np.sort(tops.places.ravel()) + 1
    # All queries have the same number of top items, so the mean of their shares is the overall
    # share.
    kept = int(np.ceil(fidelity * len(needed) - 1e-9))
    return int(max(needed[max(kept, 1) - 1], tops.rows.shape[1]))


def fidelity_of(
    collection: StoredCollection,
    ann: AnnIndex,
    queries: TuneQueries,
    tops: ExhaustiveTops,
    candidates: int,
) -> float:
    """Measure the mean share of the top items that the first stage finds."""
    if candidates >= collection.entry.count:
        return 1.0
    kept = 0
    for embedding, top in zip(queries.embeddings, tops.rows, strict=True):
        found, _ = retrieve(ann, collection.embeddings, embedding, candidates)
        kept += np.count_nonzero(np.isin(top, found))
    return kept / tops.rows.size


class TimedSearch(NamedTuple):
    """Settings of both stages.

    Attributes:
        ann: ANN index with its search settings.
        candidates: Number of candidates.
    """

    ann: AnnIndex
    candidates: int


def two_stage_ms(
    collection: StoredCollection,
    queries: TuneQueries,
    fusion: DirectionFusion,
    searches: Sequence[TimedSearch],
) -> list[float]:
    """Return the median times of retrieval and re-ranking for some of the queries.

    The searches take turns, each with another query: what slows the machine down concerns all of
    them, and none finds what the one before it has left in the caches.
    """
    count = min(len(queries.tokens), _TIMED_QUERIES)
    times_ms = np.empty((len(searches), count))
    threads = compute_threads()
    set_compute_threads(1)  # as the service does: a query is one thread's work
    try:
        for turn in range(count):
            for place, (ann, candidates) in enumerate(searches):
                query = (turn + place * count // len(searches)) % count
                started = time.perf_counter()
                rows, match = retrieve(
                    ann, collection.embeddings, queries.embeddings[query], candidates
                )
                tokens = queries.tokens[query]
                align = alignment_with_candidates(tokens, queries.modality, collection.tokens, rows)
                ordered_page(fusion.combine(align, match), match, None, slice(None))
                times_ms[place, turn] = 1000 * (time.perf_counter() - started)
    finally:
        set_compute_threads(threads)
    return np.median(times_ms, axis=1).tolist()
