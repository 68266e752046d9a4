"""The first stage of a query: candidates from an engine, ordered by their exact cosines.

Exact search over the stored embeddings is the reference, and serves what an ANN index cannot.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from aladin_index.ann import faiss
from aladin_index.ann.ann_index import AnnIndex
from aladin_index.format.npy import read_rows_ahead
from aladin_index.items.selection import Selection
from aladin_index.kernel import blocks_read
from aladin_network.errors import IndexCorruptError

# Number of rows that are scored at a time, so that millions of rows are not in memory at once.
_ROWS_AT_A_TIME = 65_536
# Largest share of rows that are scored as copies: scattered rows are copied first. Measured with
# 50,000 rows of 256 values on one core: all in order take 1.6 ms, a fifth of them copied 1.4 ms,
# half of them copied 6.5 ms.
_WORTH_COPYING = 0.2


class FirstStage(Protocol):
    """Finds candidates; thread-safe."""

    def search(
        self, query: NDArray[np.float32], count: int, allowed: Selection | None = None
    ) -> NDArray[np.int64]:
        """Find the nearest rows, approximately.

        Args:
            query: (dim,), L2-normalised.
            count: Number of rows wanted.
            allowed: Rows to choose from, or None for all.

        Returns:
            Rows in no order to rely on: At least `count` if the first stage finds so many, and more
            where it cannot tell which of them are the nearest.
        """
        ...


def with_margin(count: int) -> int:
    """Return how many rows to request of half-precision vectors to include the best `count`.

    They change the order only where cosines agree to 0.001; re-scoring with exact cosines then
    finds the right ones.
    """
    return count + count // 10 + 16


def exact_search(
    embeddings: NDArray[np.float32],
    query: NDArray[np.float32],
    count: int | None,
    allowed: Selection | None = None,
) -> tuple[NDArray[np.int64], NDArray[np.float32]]:
    """Find the rows with the largest inner products.

    Args:
        embeddings: (items, dim).
        query: (dim,).
        count: Number of rows wanted, or None for all that are allowed, in ascending order.
        allowed: Rows to choose from, or None for all.

    Returns:
        Rows, best first, those of equal score in ascending order, and their scores; fewer than
        `count` where there are no more.
    """
    rows = np.arange(len(embeddings), dtype=np.int64) if allowed is None else allowed.rows
    is_sparse = allowed is not None and worth_copying(allowed, len(embeddings))
    total = len(rows) if is_sparse else len(embeddings)
    scores = np.empty(total, dtype=np.float32)
    for start in range(0, total, _ROWS_AT_A_TIME):
        part = slice(start, start + _ROWS_AT_A_TIME)
        compared = embeddings[rows[part]] if is_sparse else embeddings[part]
        np.matmul(compared, query, out=scores[part])
    if allowed is not None and not is_sparse:
        scores = scores[rows]
    if count is None:
        return rows, scores
    best = largest(scores, count)
    return rows[best], scores[best]


def worth_copying(allowed: Selection, count: int) -> bool:
    """Return whether so few of `count` rows are selected that they are best compared one by one."""
    return allowed.count < _WORTH_COPYING * count


def largest(scores: NDArray[np.float32], count: int) -> NDArray[np.int64]:
    """Return the positions of the largest scores, best first, equal ones in ascending order."""
    places = np.arange(len(scores), dtype=np.int64)
    if count < len(scores):
        threshold = np.partition(scores, len(scores) - count)[len(scores) - count]
        above = np.flatnonzero(scores > threshold)
        level = np.flatnonzero(scores == threshold)[: count - len(above)]
        places = np.sort(np.concatenate([above, level]))
    return places[np.argsort(-scores[places], kind="stable")]


def retrieve(
    engine: FirstStage,
    embeddings: NDArray[np.float32],
    query: NDArray[np.float32],
    count: int,
    allowed: Selection | None = None,
) -> tuple[NDArray[np.int64], NDArray[np.float32]]:
    """Find the best of the first stage's rows; if these are too few, compare all rows.

    Args:
        engine: First stage over the embeddings.
        embeddings: (items, dim), contiguous; may be a memory map.
        query: (dim,).
        count: Number of rows wanted, if so many are allowed.
        allowed: Rows to choose from, or None for all.

    Returns:
        Rows, best first, those of equal score in ascending order, and their exact cosines.

    Raises:
        IndexCorruptError: If the index of the first-stage engine names rows that do not exist.
    """
    return retrieve_all(engine, embeddings, query[None], count, allowed)[0]


def retrieve_all(
    engine: FirstStage,
    embeddings: NDArray[np.float32],
    queries: NDArray[np.float32],
    count: int,
    allowed: Selection | None = None,
) -> list[tuple[NDArray[np.int64], NDArray[np.float32]]]:
    """Find the best rows of several queries, (queries, dim), as `retrieve` does."""
    found = found_by(engine, embeddings, queries, count, allowed)
    return [
        best if len(best[0]) >= count else exact_search(embeddings, query, count, allowed)
        for query, best in zip(queries, found, strict=True)
    ]


def found_by(
    engine: FirstStage,
    embeddings: NDArray[np.float32],
    queries: NDArray[np.float32],
    count: int,
    allowed: Selection | None = None,
) -> list[tuple[NDArray[np.int64], NDArray[np.float32]]]:
    """Find the best of the first stage's rows only; see `retrieve_all`.

    Returns:
        As `retrieve_all`; fewer than `count` rows where the engine finds too few.

    Raises:
        IndexCorruptError: If the index of the first-stage engine names rows that do not exist.
    """
    if not isinstance(engine, AnnIndex):
        rows = [engine.search(query, count, allowed) for query in queries]
        return _best_of_each(engine, embeddings, queries, rows, count)
    found = engine.search_scored(queries, count, allowed)
    if engine.keeps_vectors:
        for rows, _ in found:
            _check_rows(rows, len(embeddings), engine)
        return [_in_order(rows[:count], scores[:count]) for rows, scores in found]
    before = blocks_read()
    if engine.is_cold:
        for rows, _ in found:
            read_rows_ahead(embeddings, rows)
    best = _best_of_each(engine, embeddings, queries, [rows for rows, _ in found], count)
    engine.is_cold = blocks_read() > before
    return best


def _best_of_each(
    engine: FirstStage,
    embeddings: NDArray[np.float32],
    queries: NDArray[np.float32],
    found: Sequence[NDArray[np.int64]],
    count: int,
) -> list[tuple[NDArray[np.int64], NDArray[np.float32]]]:
    """Compare each query with the rows that were found for it, see `best_of`."""
    for rows in found:
        _check_rows(rows, len(embeddings), engine)
    return [
        best_of(embeddings, query, rows, count) for query, rows in zip(queries, found, strict=True)
    ]


def best_of(
    embeddings: NDArray[np.float32],
    query: NDArray[np.float32],
    rows: NDArray[np.int64],
    count: int,
) -> tuple[NDArray[np.int64], NDArray[np.float32]]:
    """Find the best of some rows, reading each where it is.

    Args:
        embeddings: (items, dim), contiguous; may be a memory map.
        query: (dim,).
        rows: Rows of the embeddings in any order, int64, all of which exist.
        count: Number of rows wanted.

    Returns:
        As `retrieve`.
    """
    scores = exact_scores(embeddings, query, rows)
    order = scores.argsort()[::-1]
    # Equal scores are rare, especially at the limit; there, the lower rows are kept.
    if len(order) > count and scores[order[count]] == scores[order[count - 1]]:
        order = np.lexsort((rows, -scores))
    best = order[:count]
    return _in_order(rows[best], scores[best])


def _check_rows(rows: NDArray[np.int64], count: int, engine: FirstStage) -> None:
    """Refuse rows from a file that do not exist: FAISS would read out of bounds.

    The file was checked when it was opened, and may have been written to since. Takes 2 us for 300
    rows: negative ones are the largest numbers without a sign, so that one comparison does.
    """
    if len(rows) and int(rows.view(np.uint64).max()) >= count:
        file = engine.file if isinstance(engine, AnnIndex) else None
        wrong = rows[rows.view(np.uint64) >= count][0]
        raise IndexCorruptError(
            file or "the first stage", f"expected rows below {count}, found {wrong}"
        )


def _in_order(
    rows: NDArray[np.int64], scores: NDArray[np.float32]
) -> tuple[NDArray[np.int64], NDArray[np.float32]]:
    """Sort rows with the same score in ascending order; the scores descend already."""
    if (scores[1:] == scores[:-1]).any():
        order = np.lexsort((rows, -scores))
        return rows[order], scores[order]
    return rows, scores


def exact_scores(
    embeddings: NDArray[np.float32], query: NDArray[np.float32], rows: NDArray[np.int64]
) -> NDArray[np.float32]:
    """Return the inner products of a query and some rows.

    FAISS reads the rows where they are. NumPy would copy them first: 300 of a million rows then
    take 35 us, and 18 us so.

    Args:
        embeddings: (items, dim), contiguous.
        query: (dim,), contiguous.
        rows: Rows of the embeddings, int64; FAISS does not check them.
    """
    scores = np.empty(len(rows), dtype=np.float32)
    faiss.fvec_inner_products_by_idx(
        faiss.swig_ptr(scores),
        faiss.swig_ptr(query),
        faiss.swig_ptr(embeddings),
        faiss.swig_ptr(rows),
        embeddings.shape[1],
        1,
        len(rows),
    )
    return scores


def merge_orders(
    rows: NDArray[np.int64],
    scores: NDArray[np.float32],
    added: NDArray[np.int64],
    added_scores: NDArray[np.float32],
    count: int,
) -> tuple[NDArray[np.int64], NDArray[np.float32]]:
    """Merge two orders by score; each keeps its order, and ties are in row order.

    An item that the ANN missed may stand behind one that it found and score higher: it counts
    there with the lowest score before it.
    """
    keys = np.concatenate([np.minimum.accumulate(scores), added_scores])
    # Stable sort, and all rows of the generation are below all added rows.
    best = np.argsort(-keys, kind="stable")[:count]
    return np.concatenate([rows, added])[best], np.concatenate([scores, added_scores])[best]
