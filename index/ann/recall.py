"""How many of the truly nearest items the first stage finds."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from index.ann.ann_index import AnnIndex
from index.ann.faiss_library import faiss
from index.ann.retrieval import found_by

# Cosines that were added up in another order may differ by this much.
_ROUNDING = 1e-6


def sample_queries(embeddings: NDArray[np.float32], count: int) -> NDArray[np.float32]:
    """Copy embeddings to ask with, the same ones each time.

    Args:
        embeddings: (items, dim); may be a memory map.
        count: wanted; all where there are fewer.
    """
    rows = np.random.default_rng(0).permutation(len(embeddings))[:count]
    return np.ascontiguousarray(embeddings[np.sort(rows)], dtype=np.float32)


def lowest_true_scores(
    embeddings: NDArray[np.float32], queries: NDArray[np.float32], count: int
) -> NDArray[np.float32]:
    """Return the cosine to each query's `count`-th nearest item, by exact search.

    All queries are compared in one pass over the embeddings, a thousand of these at a time: a
    million of 256 values and 200 queries take five seconds.

    Args:
        embeddings: (items, dim), contiguous; may be a memory map.
        queries: (queries, dim), contiguous.
        count: at most the number of items.
    """
    scores, _ = faiss.knn(queries, embeddings, count, metric=faiss.METRIC_INNER_PRODUCT)
    lowest: NDArray[np.float32] = scores[:, -1]
    return lowest


def ann_recall(
    ann: AnnIndex,
    embeddings: NDArray[np.float32],
    queries: NDArray[np.float32],
    lowest: NDArray[np.float32],
    count: int,
) -> float:
    """Measure the share of the exact nearest items that are among the rows an ANN finds.

    An item that is as near as the last of them counts as one of them: which of several equal
    items is found makes no difference.

    Args:
        ann: with the way of searching to be measured.
        embeddings: (items, dim), of the index.
        queries: (queries, dim).
        lowest: of `lowest_true_scores`.
        count: number of nearest items.
    """
    found = 0
    for query, least in zip(queries, lowest, strict=True):
        # Not `retrieve`: a search that finds too few is not worth the exact one that has to
        # follow it.
        _, scores = found_by(ann, embeddings, query, count)
        found += np.count_nonzero(scores >= least - _ROUNDING)
    return found / (count * len(queries))
