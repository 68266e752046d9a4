"""Builds the first stage's FAISS index: the same vectors always make the same bytes."""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager
from typing import Any

import numpy as np
from numpy.typing import NDArray

from aladin.errors import ConfigError
from aladin.progress import Progress
from index.ann.ann_index import is_graph, ivf_lists
from index.ann.faiss_library import faiss

_TRAINING_VECTORS_PER_LIST = 64
_LEAST_TRAINING_VECTORS = 2**16
# What training may copy of the vectors: a million of 256 values.
_TRAINING_BYTES = 2**30
_EF_CONSTRUCTION = 100
_VECTORS_AT_A_TIME = 2**14


def check_factory(factory: str, dim: int, count: int) -> None:
    """Refuse, before any work, a factory string that cannot be built.

    Raises:
        ConfigError: FAISS does not know it, or it needs more vectors than there are.
    """
    index = _create(factory, dim)
    if isinstance(index, (faiss.IndexIDMap, faiss.IndexIDMap2)):
        raise ConfigError(f"ann: {factory!r} has ids of its own, which rows replace here")
    lists = ivf_lists(index)
    if lists is not None and lists > count:
        raise ConfigError(f"ann: {factory!r} needs at least {lists} vectors, there are {count}")


def build_ann(factory: str, embeddings: NDArray[np.float32], progress: Progress) -> Any:
    """Train and fill a FAISS index.

    Args:
        factory: checked by `check_factory`.
        embeddings: (items, dim), float32; may be a memory map.
        progress: advanced with the vectors that are in.

    Returns:
        The FAISS index; rows are its ids.

    Raises:
        ConfigError: FAISS refuses the vectors, e.g. because they are too few to train on.
    """
    count, dim = embeddings.shape
    index = _create(factory, dim)
    try:
        with _deterministic(index):
            if not index.is_trained:
                index.train(_sample(embeddings, ivf_lists(index) or 0))
            progress.start(count, "vectors")
            for start in range(0, count, _VECTORS_AT_A_TIME):
                part = np.ascontiguousarray(embeddings[start : start + _VECTORS_AT_A_TIME])
                index.add(part)
                progress.advance(len(part))
    except RuntimeError as error:
        raise ConfigError(f"ann: {factory!r} cannot take these vectors ({error})") from error
    return index


def _create(factory: str, dim: int) -> Any:
    try:
        index: Any = faiss.index_factory(dim, factory, faiss.METRIC_INNER_PRODUCT)
    except RuntimeError as error:
        reason = str(error).rsplit(": ", 1)[-1]
        raise ConfigError(f"ann: {factory!r} is no FAISS factory string ({reason})") from error
    if is_graph(index):
        index.hnsw.efConstruction = _EF_CONSTRUCTION
    # FAISS prints a warning where there are few vectors to train on; the calibration finds out
    # what an index is good for.
    inner = faiss.try_extract_index_ivf(index)
    parts: list[Any] = [index] if inner is None else [index, faiss.downcast_index(inner)]
    for part in parts:
        quantisers: list[Any] = [part, getattr(part, "pq", None)]
        for trained in quantisers:
            if hasattr(trained, "cp"):
                trained.cp.min_points_per_centroid = 1
    return index


@contextmanager
def _deterministic(index: Any) -> Generator[None]:
    """Keep threads out where their order would decide the result.

    Two threads that add to a graph see each other's links or do not. K-means and inverted lists
    come out the same whatever the number of threads.
    """
    threads = faiss.omp_get_max_threads()
    if is_graph(index):
        faiss.omp_set_num_threads(1)
    try:
        yield
    finally:
        faiss.omp_set_num_threads(threads)


def training_vectors(lists: int, dim: int) -> int:
    """Return how many vectors are trained on, where there are as many.

    Args:
        lists: inverted lists of the index.
        dim: of a vector.
    """
    wanted = max(_LEAST_TRAINING_VECTORS, _TRAINING_VECTORS_PER_LIST * lists)
    return min(wanted, _TRAINING_BYTES // (4 * dim))


def _sample(embeddings: NDArray[np.float32], lists: int) -> NDArray[np.float32]:
    """Copy vectors to train on, the same ones each time."""
    count = training_vectors(lists, embeddings.shape[1])
    if count >= len(embeddings):
        return np.ascontiguousarray(embeddings)
    rows = np.sort(np.random.default_rng(0).choice(len(embeddings), count, replace=False))
    return embeddings[rows]
