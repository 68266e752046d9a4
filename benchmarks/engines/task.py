"""The task of the engine comparison: data, correct answers, and the choice of search parameters.

Photos are drawn once and kept as float32 arrays, so that all engines index the same ones; the
correct answers are computed from those arrays. The parameters of every engine are chosen by the
same procedure.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple, Protocol, TypeVar

import numpy as np
from numpy.typing import NDArray

from benchmarks.lib.measuring import time_in_turn
from benchmarks.lib.synthetic import SyntheticPhotos, TextQueries
from benchmarks.lib.synthetic_sources import EMBEDDING_DIM, REGIONS, TOKEN_DIM, find_source

CANDIDATES, TOP = 100, 10
RECALL_WANTED = 0.99
EMBEDDINGS, TOKENS = "embeddings.npy", "tokens.npy"
# Fraction of the photos' numbers in the window that is the filter of a query.
_ONE_IN = 1000


class Engine(Protocol):
    """A built index that is open for searching."""

    def settings(self) -> str:
        """Describe the search settings."""
        ...

    def tune(self, task: Task) -> None:
        """Choose the fastest search parameters that reach `RECALL_WANTED`."""
        ...

    def candidates(self, embedding: NDArray[np.float32]) -> Sequence[int]:
        """Find the `CANDIDATES` nearest photos."""
        ...

    def search(self, task: Task, query: int, filtered: bool) -> Sequence[int]:
        """Find the `TOP` photos for a query, best first; only in its window if `filtered`."""
        ...


class Task(NamedTuple):
    """Photos, and queries with their right answers.

    Attributes:
        embeddings: (photos, 256) float32, memory-mapped.
        tokens: (photos, 49, 128) float32, memory-mapped.
        queries: Texts; the first `tuning` are for choosing search parameters.
        tuning: Number of texts for choosing search parameters.
        windows: Numbers of the photos that the filter of each query passes.
        nearest: The `CANDIDATES` nearest photos of each query.
        best: The `TOP` of those by late interaction, of each query.
        best_in_window: The same within the window, of each query.
    """

    embeddings: NDArray[np.float32]
    tokens: NDArray[np.float32]
    queries: TextQueries
    tuning: int
    windows: list[range]
    nearest: list[NDArray[np.int64]]
    best: list[NDArray[np.int64]]
    best_in_window: list[NDArray[np.int64]]


def draw_photos(folder: Path, items: int, source: Path | None) -> dict[str, Any]:
    """Write the arrays of `items` photos; return the source's name."""
    made_from = find_source(source)
    embeddings = _new_array(folder / EMBEDDINGS, (items, EMBEDDING_DIM))
    tokens = _new_array(folder / TOKENS, (items, REGIONS, TOKEN_DIM))
    start = 0
    for batch in SyntheticPhotos(made_from).photos(items):
        end = start + len(batch.embeddings)
        embeddings[start:end], tokens[start:end] = batch
        start = end
    return {"source": made_from.name}


def open_photos(folder: Path) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
    """Map the embeddings and the tokens that `draw_photos` wrote."""
    return np.load(folder / EMBEDDINGS, mmap_mode="r"), np.load(folder / TOKENS, mmap_mode="r")


def make_task(folder: Path, tuning: int, measured: int, source: Path | None) -> Task:
    """Draw queries for the photos in a folder, and find their right answers."""
    embeddings, tokens = open_photos(folder)
    items = len(embeddings)
    # The index's own texts, used for its calibration, are drawn with another seed.
    queries = SyntheticPhotos(find_source(source)).queries(tuning + measured, items, seed=1)
    random = np.random.default_rng(0)
    wide = max(items // _ONE_IN, 1)
    starts = random.integers(0, items - wide + 1, tuning + measured).tolist()
    windows = [range(start, start + wide) for start in starts]
    scores = queries.embeddings @ embeddings.T  # (queries, photos)
    nearest = [np.argpartition(-each, min(CANDIDATES, items) - 1)[:CANDIDATES] for each in scores]
    inside = [
        window.start + np.argsort(-each[window.start : window.stop])[:CANDIDATES]
        for each, window in zip(scores, windows, strict=True)
    ]
    return Task(
        embeddings,
        tokens,
        queries,
        tuning,
        windows,
        nearest,
        [best_of(*each, tokens) for each in zip(queries.words, nearest, strict=True)],
        [best_of(*each, tokens) for each in zip(queries.words, inside, strict=True)],
    )


def best_of(
    words: NDArray[np.float32], rows: NDArray[np.int64], tokens: NDArray[np.float32]
) -> NDArray[np.int64]:
    """Return the `TOP` of some photos by late interaction, best first."""
    some = tokens[rows]  # (rows, 49, 128)
    cosines = words @ some.reshape(-1, some.shape[2]).T
    cosines = cosines.reshape(len(words), *some.shape[:2])  # (words, rows, 49)
    return rows[np.argsort(-cosines.max(axis=2).sum(axis=0))[:TOP]]


def ann_recall(
    task: Task, find: Callable[[NDArray[np.float32]], Sequence[int] | NDArray[np.int64]]
) -> float:
    """Return the share of the tuning queries' nearest photos that a search finds."""
    pairs = zip(task.queries.embeddings, task.nearest[: task.tuning], strict=False)
    return float(
        np.mean([len(np.intersect1d(find(query), near)) / len(near) for query, near in pairs])
    )


def _new_array(path: Path, shape: tuple[int, ...]) -> NDArray[np.float32]:
    return np.lib.format.open_memmap(path, mode="w+", dtype=np.float32, shape=shape)


Option = TypeVar("Option")


def fastest(
    task: Task,
    options: Sequence[Option],
    find: Callable[[Option, NDArray[np.float32]], Sequence[int] | NDArray[np.int64]],
) -> Option:
    """Return the option with the smallest median time among those with the required recall.

    Args:
        task: Task whose tuning queries are searched.
        options: Search options, at least one of which searches exactly.
        find: Function that searches with an option and returns the items found.
    """
    good = [each for each in options if ann_recall(task, partial(find, each)) >= RECALL_WANTED]

    def run(option: Option, turn: int) -> None:
        find(option, task.queries.embeddings[turn % task.tuning])

    runs = {str(place): partial(run, option) for place, option in enumerate(good)}
    times = time_in_turn(runs, repetitions=task.tuning)
    medians = [float(np.median(each)) for each in times.values()]
    return good[int(np.argmin(medians))]
