"""Recall of the first stage, and the search width that reaches a required recall."""

from __future__ import annotations

import statistics
import time
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from aladin_index.ann import faiss
from aladin_index.ann.ann_index import AnnIndex
from aladin_index.ann.first_stage import found_by
from aladin_index.format.manifest import RecallPoint
from aladin_network.types import Progress

# Cosines may differ by this much if they were summed in another order.
_ROUNDING = 1e-6

# Number of rows requested for each row wanted, from an index that does not keep the vectors.
_OVERSAMPLES = (1.0, 1.5, 2.0, 3.0, 4.0, 6.0, 8.0, 12.0, 16.0, 24.0, 32.0)
# Minimum gain in recall: more work that gains less is not worthwhile.
_GAIN = 0.0005
_TIMED_QUERIES = 50


def sample_queries(embeddings: NDArray[np.float32], count: int) -> NDArray[np.float32]:
    """Copy a sample of embeddings to use as queries, always the same one."""
    rows = np.random.default_rng(0).permutation(len(embeddings))[:count]
    return np.ascontiguousarray(embeddings[np.sort(rows)], dtype=np.float32)


def lowest_true_scores(
    embeddings: NDArray[np.float32], queries: NDArray[np.float32], count: int
) -> NDArray[np.float32]:
    """Return the cosine to each query's `count`-th nearest item, by exact search.

    All queries are compared in one pass over the embeddings, a thousand of these at a time: a
    million of 256 values and 200 queries take five seconds.
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
    """
    found = 0
    for query, least in zip(queries, lowest, strict=True):
        # Not `retrieve`: if a search finds too few rows, the exact search after it is too
        # expensive.
        _, scores = found_by(ann, embeddings, query[None], count)[0]
        found += np.count_nonzero(scores >= least - _ROUNDING)
    return found / (count * len(queries))


class ChosenSearchWidth(NamedTuple):
    """The chosen search parameters, and all that were measured.

    Attributes:
        chosen: Point that reaches the recall wanted, or the one that comes nearest to it.
        curve: Points in ascending order, one for each width that was tried.
    """

    chosen: RecallPoint
    curve: list[RecallPoint]


def choose_search_width(
    ann: AnnIndex,
    embeddings: NDArray[np.float32],
    queries: NDArray[np.float32],
    recall_at: int,
    recall_wanted: float,
    *,
    timed: bool = False,
    progress: Progress | None = None,
) -> ChosenSearchWidth:
    """Choose the search width and the oversampling."""
    lowest = lowest_true_scores(embeddings, queries, recall_at)
    oversamples = (1.0,) if ann.keeps_vectors else _OVERSAMPLES
    widths = ann.widths or [None]
    if progress is not None:
        progress.start(len(widths), "search widths")
    curve: list[RecallPoint] = []
    enough = 0
    for width in widths:
        before = curve[-1].recall if curve else 0.0
        point = _point(
            ann, embeddings, queries, lowest, recall_at, recall_wanted, width, oversamples
        )
        curve.append(point)
        if progress is not None:
            progress.advance()
            progress.note(recall=point.recall)
        enough += point.recall >= recall_wanted
        # A wider search may still be the faster one, as it needs fewer rows; one of twice that
        # width is not.
        if enough == 2 or (not enough and is_saturated(before, point.recall)):
            break
    if timed:
        curve = [_timed(ann, embeddings, queries, recall_at, point) for point in curve]
    return ChosenSearchWidth(choose(curve, recall_wanted), curve)


def _point(
    ann: AnnIndex,
    embeddings: NDArray[np.float32],
    queries: NDArray[np.float32],
    lowest: NDArray[np.float32],
    recall_at: int,
    recall_wanted: float,
    width: int | None,
    oversamples: tuple[float, ...],
) -> RecallPoint:
    """Find the lowest oversampling that reaches the recall, or the best for this width."""
    best = RecallPoint(search_width=width, oversample=1.0, recall=-1.0)
    for oversample in oversamples:
        tried = AnnIndex(ann.faiss_index, width, oversample)
        recall = ann_recall(tried, embeddings, queries, lowest, recall_at)
        if recall - best.recall <= _GAIN:
            break
        best = RecallPoint(search_width=width, oversample=oversample, recall=recall)
        if recall >= recall_wanted:
            break
    return best


def _timed(
    ann: AnnIndex,
    embeddings: NDArray[np.float32],
    queries: NDArray[np.float32],
    count: int,
    point: RecallPoint,
) -> RecallPoint:
    """Measure the time of the search in `ann_recall`, as the median of some queries."""
    tried = AnnIndex(ann.faiss_index, point.search_width, point.oversample)
    times_ms: list[float] = []
    for query in queries[:_TIMED_QUERIES]:
        started = time.perf_counter()
        found_by(tried, embeddings, query[None], count)
        times_ms.append(1000 * (time.perf_counter() - started))
    return RecallPoint(
        search_width=point.search_width,
        oversample=point.oversample,
        recall=point.recall,
        search_ms=statistics.median(times_ms),
    )


def is_saturated(before: float, recall: float) -> bool:
    """Tell whether a width finds no more than the one before, so that none wider will."""
    return recall - before <= _GAIN and before > 0.5


def choose(curve: list[RecallPoint], recall_wanted: float) -> RecallPoint:
    """Return the cheapest point with enough recall, or else the narrowest of the best."""
    enough = [point for point in curve if point.recall >= recall_wanted]
    if not enough:
        best = max(point.recall for point in curve)
        enough = [point for point in curve if point.recall >= best - _GAIN]
    if any(point.search_ms is None for point in enough):
        return enough[0]
    return min(enough, key=lambda point: point.search_ms or 0.0)
