"""The fastest settings of both stages that keep a fidelity.

A first stage that searches more widely, or compares more items exactly, needs fewer candidates for
the same fidelity, and takes longer itself. How much longer depends on the machine, on the vectors
and on the tokens; so the width, the oversampling and the candidates are chosen together, by the
measured time of both stages.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace

import numpy as np

from aladin_index.ann.ann_index import AnnIndex
from aladin_index.ann.search_width import ann_recall, lowest_true_scores
from aladin_index.format.manifest import AnnEntry, RecallPoint, SettingsPoint
from aladin_index.measure.fidelity import (
    ExhaustiveTops,
    TimedSearch,
    TuneQueries,
    fewest_candidates,
    fidelity_of,
    two_stage_ms,
)
from aladin_index.search.live_collection import StoredCollection
from aladin_network.scoring.fusion import DirectionFusion
from aladin_network.types import Progress

# Items requested for each candidate, from an index that does not keep the vectors.
_OVERSAMPLES = (1.0, 1.5, 2.0, 3.0, 4.0, 6.0, 8.0)
# Widths, each twice the one before, that may need as many candidates as a narrower one.
_USELESS_WIDTHS = 2


def compare_settings(
    side: StoredCollection,
    queries: TuneQueries,
    tops: ExhaustiveTops,
    fusion: DirectionFusion,
    fidelity: float,
    most: int,
    progress: Progress,
) -> list[SettingsPoint]:
    """Measure the settings that keep a fidelity, each with the fewest candidates.

    Args:
        side: Collection to search, with the vectors and the ANN index of the first stage.
        queries: Queries to search for.
        tops: Exhaustive top items of these queries.
        fusion: Fusion that determines the order.
        fidelity: Mean share of the top items to keep.
        most: Largest number of candidates.
        progress: Progress, advanced width by width.

    Returns:
        Points by ascending width and oversampling; none if no setting keeps enough.
    """
    searches = list(_sufficient(side, queries, tops, fidelity, most, progress))
    if not searches:
        return []
    times_ms = two_stage_ms(side, queries, fusion, searches)
    return [
        SettingsPoint(
            search_width=each.ann.search_width,
            oversample=each.ann.oversample,
            candidates=each.candidates,
            search_ms=took_ms,
        )
        for each, took_ms in zip(searches, times_ms, strict=True)
    ]


def fastest(points: Sequence[SettingsPoint]) -> SettingsPoint:
    """Return the point of the least time; of equal ones the first with the fewest candidates."""
    return min(points, key=lambda point: (point.search_ms, point.candidates))


def ann_entry(
    stored: AnnEntry, side: StoredCollection, queries: TuneQueries, chosen: SettingsPoint
) -> AnnEntry:
    """Return the entry of an ANN index with other search settings and their recall.

    Args:
        stored: Entry of the index.
        side: Collection with its vectors.
        queries: Queries to measure the recall with.
        chosen: Settings.
    """
    width, oversample, count = chosen.search_width, chosen.oversample, chosen.candidates
    asked = np.ascontiguousarray(queries.embeddings)
    recall = ann_recall(
        AnnIndex(side.ann.faiss_index, width, oversample),
        side.embeddings,
        asked,
        lowest_true_scores(side.embeddings, asked, count),
        count,
    )
    return replace(
        stored,
        search_width=width,
        oversample=oversample,
        recall=recall,
        recall_at=count,
        recall_queries=len(asked),
        curve=[RecallPoint(search_width=width, oversample=oversample, recall=recall)],
    )


def fewest_enough(least: int, most: int, enough: Callable[[int], bool]) -> int | None:
    """Find the smallest number from `least` to `most` that is enough, or None.

    Args:
        least: Smallest number to try, at most `most`.
        most: Largest number to try.
        enough: Function that tells whether a number is enough; if one is, so are the larger ones.
    """
    if enough(least):
        return least
    low, high = least, min(2 * least, most)
    while not enough(high):
        if high == most:
            return None
        low, high = high, min(2 * high, most)
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if enough(middle) else (middle, high)
    return high


def _sufficient(
    side: StoredCollection,
    queries: TuneQueries,
    tops: ExhaustiveTops,
    fidelity: float,
    most: int,
    progress: Progress,
) -> Iterator[TimedSearch]:
    """Yield the settings that reach the fidelity.

    Slower ones that do not reduce the number of candidates are skipped.
    """
    widths = side.ann.widths or [None]
    oversamples = (1.0,) if side.ann.keeps_vectors else _OVERSAMPLES
    least = min(fewest_candidates(tops, fidelity), most)
    progress.start(len(widths), "search widths")
    fewest, useless = most + 1, 0
    for width in widths:
        before = most + 1
        for oversample in oversamples:
            ann = AnnIndex(side.ann.faiss_index, width, oversample)

            def enough(candidates: int, ann: AnnIndex = ann) -> bool:
                kept = fidelity_of(side, ann, queries, tops, candidates, completed=False)
                return kept >= fidelity

            candidates = fewest_enough(least, most, enough)
            if candidates is None:
                continue
            if candidates >= before:
                break
            before = candidates
            yield TimedSearch(ann, candidates)
        progress.advance()
        useless = useless + 1 if fewest <= before <= most else 0
        fewest = min(fewest, before)
        if useless == _USELESS_WIDTHS:
            return
