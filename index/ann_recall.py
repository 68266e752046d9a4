"""How many of the truly nearest items an ANN finds, and how wide it has to search for that."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from index.ann import AnnIndex
from index.exact import exact_search

# The share of the nearest items that the first stage should hand on.
RECALL_WANTED = 0.99
_QUERIES = 200
# A wider search that finds no more than this is not worth its time.
_GAIN = 0.001


class Calibration(NamedTuple):
    """A search width and what it finds.

    Attributes:
        search_width: None where there is nothing to choose.
        recall: ann_recall at that width.
        queries: number of queries it was measured with.
    """

    search_width: int | None
    recall: float
    queries: int


def calibrate(
    ann: AnnIndex,
    embeddings: NDArray[np.float32],
    queries: NDArray[np.float32],
    recall_at: int,
) -> Calibration:
    """Choose the narrowest search that finds `RECALL_WANTED`, else the best there is.

    Args:
        ann: of the embeddings.
        embeddings: (items, dim).
        queries: (queries, dim), of the kind that will be asked; a sample of them is taken.
        recall_at: number of nearest items to find.
    """
    rows = np.random.default_rng(0).permutation(len(queries))[:_QUERIES]
    sample = np.asarray(queries[np.sort(rows)], dtype=np.float32)
    truth = [exact_search(embeddings, query, recall_at)[0] for query in sample]
    tried: list[Calibration] = []
    for width in ann.widths or [None]:
        recall = ann_recall(ann, sample, truth, width)
        tried.append(Calibration(width, recall, len(sample)))
        if recall >= RECALL_WANTED:
            return tried[-1]
    best = max(each.recall for each in tried)
    return next(each for each in tried if each.recall >= best - _GAIN)


def ann_recall(
    ann: AnnIndex,
    queries: NDArray[np.float32],
    truth: list[NDArray[np.int64]],
    search_width: int | None = None,
) -> float:
    """Measure the share of the exact nearest rows that a search finds.

    Args:
        ann: the index.
        queries: (queries, dim).
        truth: each query's nearest rows by exact search.
        search_width: overrides the index's own.
    """
    shares = [
        len(np.intersect1d(ann.search(query, len(nearest), None, search_width), nearest))
        / len(nearest)
        for query, nearest in zip(queries, truth, strict=True)
    ]
    return float(np.mean(shares))
