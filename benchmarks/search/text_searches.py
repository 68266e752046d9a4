"""Searches of synthetic photos by texts that are encoded already.

What searches of synthetic photos find: beside exact search, and beside exhaustive alignment.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from aladin_index.ann.retrieval import exact_search, largest
from aladin_index.search.options import SearchOptions
from aladin_index.search.query import EncodedQuery
from aladin_index.search.results import SearchAnswer
from aladin_index.search.searcher import TwoStageSearcher
from aladin_index.search.stored_collection import StoredCollection
from aladin_index.tokens.alignment import alignment_with_all
from aladin_network.scoring.scores import Encoding
from benchmarks.lib.synthetic import TextQueries

CANDIDATES = 100
TOP = 10


class TextSearches:
    """Searches photos with ready-encoded texts, by their numbers."""

    def __init__(self, searcher: TwoStageSearcher, queries: TextQueries) -> None:
        """Search with `queries`."""
        self._searcher = searcher
        self.queries = queries
        self.words = [torch.from_numpy(words) for words in queries.words]
        self._encodings = [
            Encoding(
                torch.from_numpy(embedding).unsqueeze(0),
                words.unsqueeze(0),
                torch.ones(1, len(words), dtype=torch.bool),
            )
            for embedding, words in zip(queries.embeddings, self.words, strict=True)
        ]

    def search(self, turn: int, candidates: int) -> SearchAnswer:
        """Search with query number `turn`, and from the first on again after the last."""
        return self._searcher.search(
            EncodedQuery(self._encodings[turn % len(self._encodings)], "text"),
            "images",
            SearchOptions(k=TOP, candidates=candidates, fusion=1.0),
        )


_FIDELITY_WANTED = 0.99
# Steps of about a fifth.
_LADDER = (
    *(10, 20, 30, 50, 70, 85, 100, 120, 150, 170, 200, 220, 250, 300, 350, 400, 500, 600, 700),
    *(850, 1000, 1200, 1500, 1700, 2000, 2500, 3000),
)


def measure_recall(side: StoredCollection, queries: TextQueries, count: int) -> float:
    """Return the share of the exact nearest photos that are candidates.

    Args:
        side: of the photos.
        queries: to ask.
        count: queries that are asked, at most.
    """
    shares: list[float] = []
    for query in queries.embeddings[:count]:
        found, _ = side.candidates(query, CANDIDATES)
        nearest, _ = exact_search(side.embeddings, query, CANDIDATES)
        shares.append(len(np.intersect1d(found, nearest)) / len(nearest))
    return float(np.mean(shares))


def measure_fidelity(side: StoredCollection, asking: TextSearches, count: int) -> dict[str, Any]:
    """Find the fewest candidates that keep the exhaustive order's top, and what they keep.

    One half of the queries chooses the number, the other is what the fidelity is measured with.

    Args:
        side: of the photos.
        asking: the same photos, by alignment alone.
        count: queries that are asked.
    """
    scores = alignment_with_all(asking.words[:count], "text", side.tokens)
    best = [largest(of_query, TOP) for of_query in scores]
    half = count // 2
    curve: dict[str, float] = {}
    chosen = side.entry.count
    for candidates in _LADDER:
        if candidates >= side.entry.count:
            break
        shares = _kept(asking, best, range(half), candidates)
        curve[str(candidates)] = float(shares.mean())
        # Within the error of so few queries, or the others would fall short as often as not.
        if shares.mean() - shares.std() / math.sqrt(half) >= _FIDELITY_WANTED:
            chosen = candidates
            break
    held_out = range(half, count)
    return {
        "candidates": chosen,
        "fidelity": float(_kept(asking, best, held_out, chosen).mean()),
        "fidelity_at_100": float(_kept(asking, best, held_out, CANDIDATES).mean()),
        "fidelity_curve": curve,
        "fidelity_queries": len(held_out),
    }


def _kept(
    asking: TextSearches, best: Sequence[NDArray[np.int64]], queries: range, candidates: int
) -> NDArray[np.float64]:
    """Return the share of each query's best photos that are among its hits."""
    shares: list[float] = []
    for number in queries:
        found = {hit.id for hit in asking.search(number, candidates).hits}
        shares.append(len(found & {f"photo-{row}" for row in best[number]}) / len(best[number]))
    return np.array(shares)
