"""Costs of FAISS on embeddings of synthetic photos: for `benchmarks.search.constants`."""

from __future__ import annotations

import math
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import nnls

from aladin_index.ann import faiss
from aladin_index.ann.ann_index import AnnIndex, build_ann, training_vectors
from aladin_index.ann.first_stage import exact_scores, found_by
from aladin_index.ann.search_width import choose_search_width
from aladin_index.capacity.constants import FirstStageConstants, SearchWidth
from aladin_index.capacity.costs import ANN_RECALL
from aladin_index.format.manifest import RecallPoint
from aladin_network.types import NullProgress
from benchmarks.lib.measuring import one_thread, quiet_median_s, quiet_time
from benchmarks.lib.synthetic import SyntheticPhotos
from benchmarks.search.ann_factories import draw_embeddings

CANDIDATES = 100
_CALIBRATED, _TIMED = 200, 200
_FLAT_SHARES = (0.1, 0.2, 0.4, 1.0)
_FLAT_MOST = 50_000
_WIDTHS = (1, 4, 16, 64)
_ROWS = 300
# A large factor, so that the costs proportional to the lists can be separated from the others.
_MANY_LISTS = 8


class BuiltLists(NamedTuple):
    """The time of one build.

    Attributes:
        vectors: Number of vectors in the index.
        lists: Number of lists of the index.
        seconds: Seconds to train and fill it.
        index: The FAISS index.
    """

    vectors: int
    lists: int
    seconds: float
    index: Any


class SearchTime(NamedTuple):
    """Median time of FAISS's own search.

    Attributes:
        width: Number of lists that were searched.
        code_bytes: Number of code bytes scanned, on average.
        seconds: Seconds without the comparison with the centroids.
    """

    width: int
    code_bytes: float
    seconds: float


def measure_first_stage(photos: SyntheticPhotos, items: Sequence[int]) -> FirstStageConstants:
    """Measure exact search, inverted lists, and the search width required for them.

    Args:
        photos: Photos whose embeddings are searched with their captions.
        items: Numbers of photos, ascending; the widths are measured at each, everything else at the
            first and the last.
    """
    with tempfile.TemporaryDirectory() as folder:
        embeddings = draw_embeddings(Path(folder) / "embeddings.npy", photos, items[-1])
        queries = photos.queries(_CALIBRATED + _TIMED, items[-1]).embeddings
        calibrating = np.ascontiguousarray(queries[:_CALIBRATED])
        timing = np.ascontiguousarray(queries[_CALIBRATED:])
        flat_s = [
            _flat_s(embeddings[: int(share * min(_FLAT_MOST, items[-1]))], timing)
            for share in _FLAT_SHARES
        ]
        widths: list[SearchWidth] = []
        searches: list[SearchTime] = []
        calibrated_s = 0.0
        for count in items:
            index = _built(embeddings[:count], _lists_of(count)).index
            with quiet_time() as calibrated:
                found = choose_search_width(
                    AnnIndex(index, None), embeddings[:count], calibrating, CANDIDATES, ANN_RECALL
                )
            calibrated_s = calibrated.seconds
            widths.append(_needed(count, index, found.chosen, found.curve, timing))
            searches += _search_times(index, timing, found.chosen.oversample)
        builds = _builds(embeddings, items)
        searches += _search_times(builds[-1].index, timing, widths[-1].oversample)
        searching = fit_searches(searches)
        building = fit_builds(builds, embeddings.shape[1])
        return FirstStageConstants(
            flat_s=flat_s,
            coarse_s=_coarse_s(builds[-1].index, timing),
            scan_s=searching[0],
            list_s=searching[1],
            code_byte_s=searching[2],
            row_s=_row_s(embeddings, timing),
            train_s=building[0],
            train_fixed_s=building[1],
            assign_s=building[2],
            encode_s=building[3],
            calibrate_s=calibrated_s / embeddings.size,
            widths=widths,
        )


def _flat_s(embeddings: NDArray[np.float32], queries: NDArray[np.float32]) -> tuple[float, float]:
    """Return the size of some vectors and the time to compare a query with all of them."""
    flat = AnnIndex(build_ann("Flat", embeddings, NullProgress()), None)
    seconds = _median_s(
        lambda turn: found_by(flat, embeddings, _at(queries, turn)[None], CANDIDATES)
    )
    return float(embeddings.nbytes), seconds


def _lists_of(count: int) -> int:
    """Return the number of lists of a build of `count` photos, even below `EXACT_UP_TO`."""
    return 2 ** round(math.log2(math.sqrt(count)))


def _built(embeddings: NDArray[np.float32], lists: int) -> BuiltLists:
    factory = f"IVF{lists},PQ{embeddings.shape[1]}x4fs"
    with quiet_time() as built:
        index = build_ann(factory, embeddings, NullProgress())
    return BuiltLists(len(embeddings), lists, built.seconds, index)


def _builds(embeddings: NDArray[np.float32], items: Sequence[int]) -> list[BuiltLists]:
    """Build with few and with many lists, on few and on many vectors."""
    few = _lists_of(items[0])
    many = _MANY_LISTS * few
    least = min(training_vectors(many, embeddings.shape[1]), len(embeddings))
    return [
        _built(embeddings[:count], lists)
        for lists in (few, many)
        for count in (least, len(embeddings))
    ]


def fit_builds(builds: Sequence[BuiltLists], dim: int) -> list[float]:
    """Return seconds per value: training per list, training, assignment per list, encoding.

    The least squares of the relative errors, none below 0.
    """
    rows: list[list[float]] = []
    for each in builds:
        sample = min(training_vectors(each.lists, dim), each.vectors)
        row = [sample * each.lists, sample, each.vectors * each.lists, each.vectors]
        rows.append([dim * value / each.seconds for value in row])
    return _non_negative(rows)


def _search_times(index: Any, queries: NDArray[np.float32], oversample: float) -> list[SearchTime]:
    """Time FAISS's search at several widths, one query at a time."""
    wanted = math.ceil(CANDIDATES * oversample)
    lengths = np.array([index.invlists.list_size(number) for number in range(index.nlist)])
    times: list[SearchTime] = []
    for width in _WIDTHS:
        parameters = faiss.SearchParametersIVF(nprobe=width)
        seconds = _median_s(
            lambda turn, parameters=parameters: index.search(
                _at(queries, turn)[None], wanted, params=parameters
            )
        )
        coarse = _median_s(
            lambda turn, width=width: _nearest_lists(index, _at(queries, turn), width)
        )
        met = np.mean([lengths[_nearest_lists(index, each, width)].sum() for each in queries])
        times.append(SearchTime(width, float(met) * index.code_size, max(seconds - coarse, 0.0)))
    return times


def fit_searches(times: Sequence[SearchTime]) -> list[float]:
    """Return the seconds of a search, of a list, and of a byte of codes."""
    rows = [
        [value / each.seconds for value in (1.0, float(each.width), each.code_bytes)]
        for each in times
        if each.seconds > 0
    ]
    return _non_negative(rows)


def _non_negative(rows: Sequence[Sequence[float]]) -> list[float]:
    """Solve rows @ x = 1 by least squares, with x at least 0."""
    matrix = np.array(rows)
    # Columns are scaled to the same maximum, because otherwise the smallest unit would have no
    # influence.
    scale = matrix.max(axis=0)
    solution, _ = nnls(matrix / scale, np.ones(len(matrix)))
    return (solution / scale).tolist()


def _coarse_s(index: Any, queries: NDArray[np.float32]) -> float:
    """Return the seconds to compare a query with one value of a centroid."""
    seconds = _median_s(lambda turn: _nearest_lists(index, _at(queries, turn), 1))
    return seconds / (index.nlist * index.d)


def _nearest_lists(index: Any, query: NDArray[np.float32], width: int) -> NDArray[np.int64]:
    return index.quantizer.search(query[None], width)[1][0]


def _needed(
    count: int,
    index: Any,
    chosen: RecallPoint,
    curve: Sequence[RecallPoint],
    queries: NDArray[np.float32],
) -> SearchWidth:
    """Return the width that reaches the recall, between the powers of two that were tried."""
    assert chosen.search_width is not None  # inverted lists have one
    width = float(chosen.search_width)
    below = [point for point in curve if (point.search_width or 0) < width]
    if below and below[-1].recall < ANN_RECALL < chosen.recall:
        share = (ANN_RECALL - below[-1].recall) / (chosen.recall - below[-1].recall)
        width *= 2 ** (share - 1)
    lengths = np.array([index.invlists.list_size(number) for number in range(index.nlist)])
    met = [lengths[_nearest_lists(index, each, chosen.search_width)].sum() for each in queries]
    return SearchWidth(
        items=count,
        lists=index.nlist,
        width=width,
        oversample=chosen.oversample,
        skew=float(np.mean(met)) / (count * chosen.search_width / index.nlist),
    )


def _row_s(embeddings: NDArray[np.float32], queries: NDArray[np.float32]) -> float:
    """Return the seconds to compare a query with a row at a random position."""
    random = np.random.default_rng(0)
    rows = [random.choice(len(embeddings), _ROWS, replace=False) for _ in range(64)]
    vectors = np.ascontiguousarray(embeddings)
    seconds = _median_s(
        lambda turn: exact_scores(vectors, _at(queries, turn), rows[turn % len(rows)])
    )
    return seconds / _ROWS


def _at(queries: NDArray[np.float32], turn: int) -> NDArray[np.float32]:
    return queries[turn % len(queries)]


def _median_s(run: Callable[[int], object]) -> float:
    """Return the median time of a function, which gets the number of its call."""
    with one_thread():
        return quiet_median_s(run, _TIMED)
