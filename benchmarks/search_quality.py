"""What searches of synthetic photos find: beside exact search, and beside exhaustive alignment."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from benchmarks.synthetic import TextQueries
from benchmarks.text_searches import CANDIDATES, TOP, TextSearches
from index.ann.exact import exact_search, largest
from index.rerank import alignment_with_all
from index.side import Side

_FIDELITY_WANTED = 0.99
# Steps of about a fifth.
_LADDER = (
    *(10, 20, 30, 50, 70, 85, 100, 120, 150, 170, 200, 220, 250, 300, 350, 400, 500, 600, 700),
    *(850, 1000, 1200, 1500, 1700, 2000, 2500, 3000),
)


def measure_recall(side: Side, queries: TextQueries, count: int) -> float:
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


def measure_fidelity(side: Side, asking: TextSearches, count: int) -> dict[str, Any]:
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
