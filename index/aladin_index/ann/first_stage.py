"""The first stage: the ways to find the items nearest to a query, asked one after the other.

Each way answers the searches that it is best at, with exact cosines, and leaves the others to the
next; a device is one of them.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from aladin_index.ann.ann_index import EXACT_UP_TO, AnnIndex
from aladin_index.ann.exact_scan import ExactScan
from aladin_index.ann.exact_search import Nearest, best_of, check_rows, exact_search, in_order
from aladin_index.format.npy import read_rows_ahead
from aladin_index.items.selection import Selection
from aladin_index.kernel import blocks_read


class FirstStage(Protocol):
    """One way to find the nearest items of a collection; thread-safe."""

    def nearest(
        self, queries: NDArray[np.float32], count: int, allowed: Selection | None = None
    ) -> list[Nearest] | None:
        """Find the nearest rows of (queries, dim), or leave the search to the next way.

        As many as `count` are found if enough are allowed.
        """
        ...


class ExactSearch:
    """Compares all rows if all are wanted, or few pass a filter: less work than a wider search."""

    def __init__(self, ann: AnnIndex, embeddings: NDArray[np.float32]) -> None:
        """Search (items, dim) embeddings, which are those of the ANN."""
        self._ann, self._embeddings = ann, embeddings

    def nearest(
        self, queries: NDArray[np.float32], count: int, allowed: Selection | None = None
    ) -> list[Nearest] | None:
        """Find the nearest rows, see `FirstStage`."""
        total = len(self._embeddings) if allowed is None else allowed.count
        few = allowed is not None and (total <= EXACT_UP_TO or not self._ann.takes_selections)
        if not few and count < total:
            return None
        return [exact_search(self._embeddings, query, count, allowed) for query in queries]


class AnnSearch:
    """Searches the ANN; takes every search, and compares all rows if the ANN finds too few."""

    def __init__(self, ann: AnnIndex, embeddings: NDArray[np.float32]) -> None:
        """Search an ANN; (items, dim) embeddings, contiguous, give the exact cosines."""
        self._ann, self._embeddings = ann, embeddings

    def nearest(
        self, queries: NDArray[np.float32], count: int, allowed: Selection | None = None
    ) -> list[Nearest]:
        """Find the nearest rows, see `FirstStage`.

        Raises `IndexCorruptError` if the index names rows that do not exist.
        """
        found = found_by(self._ann, self._embeddings, queries, count, allowed)
        return filled_up(found, self._embeddings, queries, count, allowed)


def first_stages(ann: AnnIndex, embeddings: NDArray[np.float32]) -> tuple[FirstStage, ...]:
    """Return the ways to search a collection, in the order in which they are asked."""
    exact, by_ann = ExactSearch(ann, embeddings), AnnSearch(ann, embeddings)
    scan = ExactScan.of(embeddings) if ann.compares_all else None
    return (exact, by_ann) if scan is None else (scan, exact, by_ann)


def retrieve(
    ann: AnnIndex,
    embeddings: NDArray[np.float32],
    query: NDArray[np.float32],
    count: int,
    allowed: Selection | None = None,
) -> Nearest:
    """Find the best of the ANN's rows for one query, (dim,), see `AnnSearch`."""
    return AnnSearch(ann, embeddings).nearest(query[None], count, allowed)[0]


def found_by(
    ann: AnnIndex,
    embeddings: NDArray[np.float32],
    queries: NDArray[np.float32],
    count: int,
    allowed: Selection | None = None,
) -> list[Nearest]:
    """Find the best of the ANN's rows only: fewer than `count` if it finds too few."""
    found = ann.search_scored(queries, count, allowed)
    if ann.keeps_vectors:
        for rows, _ in found:
            check_rows(rows, len(embeddings), ann.file)
        return [in_order(rows[:count], scores[:count]) for rows, scores in found]
    before = blocks_read()
    if ann.is_cold:
        for rows, _ in found:
            read_rows_ahead(embeddings, rows)
    best = best_of_each(embeddings, queries, [rows for rows, _ in found], count, ann)
    ann.is_cold = blocks_read() > before
    return best


def best_of_each(
    embeddings: NDArray[np.float32],
    queries: NDArray[np.float32],
    found: Sequence[NDArray[np.int64]],
    count: int,
    ann: AnnIndex,
) -> list[Nearest]:
    """Compare each query with the rows that were found for it by an index or its copy."""
    for rows in found:
        check_rows(rows, len(embeddings), ann.file)
    return [
        best_of(embeddings, query, rows, count) for query, rows in zip(queries, found, strict=True)
    ]


def filled_up(
    found: Sequence[Nearest],
    embeddings: NDArray[np.float32],
    queries: NDArray[np.float32],
    count: int,
    allowed: Selection | None,
) -> list[Nearest]:
    """Return what was found, and what exact search finds for queries with too few rows."""
    return [
        best if len(best[0]) >= count else exact_search(embeddings, query, count, allowed)
        for query, best in zip(queries, found, strict=True)
    ]
