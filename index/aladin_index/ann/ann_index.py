"""The FAISS index of the first stage: building and searching, the same for all kinds of index.

Building is deterministic: the same vectors always produce the same bytes.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Generator
from contextlib import contextmanager
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from aladin_index.ann import faiss
from aladin_index.ann.coarse_quantiser import builds_on_card, by_distance, coarse_quantiser
from aladin_index.ann.file import read_ann
from aladin_index.items.selection import Selection
from aladin_network.errors import ConfigError
from aladin_network.graphs.threads import compute_threads
from aladin_network.types import Progress

_LOG = logging.getLogger(__name__)

# Comparing with 50,000 vectors of 256 values takes 1 to 2 ms on one core, and is exact.
EXACT_UP_TO = 50_000
# Powers of two: each takes about twice the search time of the one before.
_LISTS_SEARCHED = tuple(2**power for power in range(11))
_GRAPH_WIDTHS = (64, 128, 256, 512, 1024)

_TRAINING_VECTORS_PER_LIST = 64
_LEAST_TRAINING_VECTORS = 2**16
# Upper limit of the vectors' copy for training: a million of 256 values.
_TRAINING_BYTES = 2**30
_EF_CONSTRUCTION = 100
_VECTORS_AT_A_TIME = 2**14


class AnnIndex:
    """Searches a FAISS index; a search changes no shared state.

    Attributes:
        is_cold: Whether the vectors of the latest candidates were read from a disk, not from the
            page cache; at first they are assumed to be.
    """

    def __init__(
        self,
        index: Any,
        search_width: int | None,
        oversample: float = 1.0,
        file: Path | None = None,
    ) -> None:
        """Wrap a FAISS index; the search width is efSearch of a graph, nprobe of inverted lists.

        `oversample` is the number of rows to request for each row wanted.
        """
        self._index = index
        self.search_width = search_width
        self.oversample = oversample
        self.file = file
        self.is_cold = True
        self._parameters: dict[int | None, Any] = {}  # by width, for searches without a filter
        self.count = int(index.ntotal)
        self.dim = int(index.d)

    @classmethod
    def open(cls, path: Path, search_width: int | None, oversample: float = 1.0) -> AnnIndex:
        """Open an index file, see `aladin_index.ann.file`."""
        return cls(read_ann(path), search_width, oversample, path)

    @property
    def faiss_index(self) -> Any:
        """FAISS's index, which must not be changed."""
        return self._index

    @property
    def widths(self) -> list[int]:
        """Search widths worth testing, ascending; empty if the index has no search width."""
        lists = ivf_lists(self._index)
        if lists is not None:
            return [width for width in _LISTS_SEARCHED if width < lists] + [lists]
        return list(_GRAPH_WIDTHS) if is_graph(self._index) else []

    @cached_property
    def keeps_vectors(self) -> bool:
        """Whether its scores are exact inner products, so that oversampling is useless."""
        return isinstance(self._index, (faiss.IndexFlat, faiss.IndexIVFFlat, faiss.IndexHNSWFlat))

    @property
    def compares_all(self) -> bool:
        """Whether a search compares the query with every vector itself."""
        return isinstance(self._index, faiss.IndexFlat)

    @property
    def takes_selections(self) -> bool:
        """Whether it can restrict a search to some rows; exhaustive fast scan cannot."""
        return not isinstance(self._index, faiss.IndexFastScan)

    def search(
        self,
        query: NDArray[np.float32],
        count: int,
        allowed: Selection | None = None,
    ) -> NDArray[np.int64]:
        """Find at most `oversample` times `count` near rows for a query, (dim,), in no order.

        A selection widens the search in proportion to its rarity, so that it still finds `count`.
        """
        return self.search_scored(query[None], count, allowed)[0][0]

    def search_scored(
        self,
        queries: NDArray[np.float32],
        count: int,
        allowed: Selection | None = None,
    ) -> list[tuple[NDArray[np.int64], NDArray[np.float32]]]:
        """Find near rows of (queries, dim) like `search`, best first, equal scores in any order.

        The scores are inner products where the index `keeps_vectors`.
        """
        wanted = min(math.ceil(count * self.oversample), self.count)
        share = 1.0 if allowed is None else max(allowed.count, 1) / self.count
        width = self.search_width
        if width is not None:
            # A graph cannot return more rows than its search width.
            floor = wanted if is_graph(self._index) else 1
            width = min(math.ceil(max(width, floor) / share), self.count)
        if allowed is not None:
            parameters = _parameters(self._index, width, faiss.IDSelectorBitmap(allowed.bits))
        elif width in self._parameters:
            parameters = self._parameters[width]
        else:
            parameters = self._parameters[width] = _parameters(self._index, width, None)
        if len(queries) > 1:
            # FAISS divides queries among threads, of which every thread of ours has a number of its
            # own: by default all processors, beside the service's other workers.
            faiss.omp_set_num_threads(compute_threads())
        scores, rows = self._index.search(queries, wanted, params=parameters)
        # Places that it could not fill come last.
        return [
            (found, of_query) if found[-1] >= 0 else (found[found >= 0], of_query[found >= 0])
            for found, of_query in zip(rows, scores, strict=True)
        ]


def is_graph(index: Any) -> bool:
    """Tell whether a FAISS index is a graph."""
    return isinstance(index, faiss.IndexHNSW)


def ivf_lists(index: Any) -> int | None:
    """Return the number of inverted lists, also of a wrapped index, or None without IVF."""
    ivf = faiss.try_extract_index_ivf(index)
    return None if ivf is None else int(ivf.nlist)


def _parameters(index: Any, width: int | None, selector: Any) -> Any:
    """Build the search parameters for this kind of index, or None if it has none."""
    if isinstance(index, faiss.IndexPreTransform):
        inner = _parameters(faiss.downcast_index(index.index), width, selector)
        return None if inner is None else faiss.SearchParametersPreTransform(index_params=inner)
    if isinstance(index, faiss.IndexRefine):
        inner = _parameters(faiss.downcast_index(index.base_index), width, selector)
        return faiss.IndexRefineSearchParameters(k_factor=10, base_index_params=inner)
    if isinstance(index, (faiss.IndexIVFRaBitQ, faiss.IndexIVFRaBitQFastScan)):
        return faiss.IVFRaBitQSearchParameters(nprobe=min(width or 1, index.nlist), sel=selector)
    if isinstance(index, faiss.IndexIVF):
        return faiss.SearchParametersIVF(nprobe=min(width or 1, index.nlist), sel=selector)
    if is_graph(index):
        return faiss.SearchParametersHNSW(efSearch=width or 64, sel=selector)
    return None if selector is None else faiss.SearchParameters(sel=selector)


def check_factory(factory: str, dim: int, count: int) -> None:
    """Check, before any work, that a factory string can be built; raises `ConfigError`."""
    index = _create(factory, dim)
    if isinstance(index, (faiss.IndexIDMap, faiss.IndexIDMap2)):
        raise ConfigError(f"ann: {factory!r} has ids of its own, which rows replace here")
    lists = ivf_lists(index)
    if lists is not None and lists > count:
        raise ConfigError(f"ann: {factory!r} needs at least {lists} vectors, there are {count}")


def build_ann(
    factory: str, embeddings: NDArray[np.float32], progress: Progress, device: str = "cpu"
) -> Any:
    """Train and fill a FAISS index with (items, dim) vectors, whose rows are its ids.

    On a CUDA device that FAISS can use, inverted lists are trained and filled there; if it fails,
    the processor begins again, after one warning.
    """
    on_card = builds_on_card(device)
    try:
        return _built(factory, embeddings, progress, on_card=on_card)
    except RuntimeError as error:
        if on_card:
            _LOG.warning("building the first stage on the CPU: %s", error)
            return build_ann(factory, embeddings, progress)
        raise ConfigError(f"ann: {factory!r} cannot take these vectors ({error})") from error


def _built(
    factory: str, embeddings: NDArray[np.float32], progress: Progress, *, on_card: bool
) -> Any:
    count, dim = embeddings.shape
    index = _create(factory, dim)
    sample = _sample(embeddings, ivf_lists(index) or 0)
    distances = by_distance(sample)
    with (
        _graph_links(index, distances=distances),
        coarse_quantiser(index, distances=distances, on_card=on_card),
    ):
        if not index.is_trained:
            index.train(sample)
        progress.start(count, "vectors")
        for start in range(0, count, _VECTORS_AT_A_TIME):
            part = np.ascontiguousarray(embeddings[start : start + _VECTORS_AT_A_TIME])
            index.add(part)
            progress.advance(len(part))
    return index


def _create(factory: str, dim: int) -> Any:
    try:
        index: Any = faiss.index_factory(dim, factory, faiss.METRIC_INNER_PRODUCT)
    except RuntimeError as error:
        reason = str(error).rsplit(": ", 1)[-1]
        raise ConfigError(f"ann: {factory!r} is no FAISS factory string ({reason})") from error
    if is_graph(index):
        index.hnsw.efConstruction = _EF_CONSTRUCTION
    # FAISS prints a warning if there are few vectors to train on; the calibration measures how good
    # the index is.
    inner = faiss.try_extract_index_ivf(index)
    parts: list[Any] = [index] if inner is None else [index, faiss.downcast_index(inner)]
    for part in parts:
        quantisers: list[Any] = [part, getattr(part, "pq", None)]
        for trained in quantisers:
            if hasattr(trained, "cp"):
                trained.cp.min_points_per_centroid = 1
    return index


@contextmanager
def _graph_links(index: Any, *, distances: bool) -> Generator[None]:
    """Add to a graph with one thread, by Euclidean distance if vectors have different lengths.

    Two threads that add to a graph see each other's links or do not; k-means and inverted lists
    come out the same whatever the number of threads. By the inner product, the links lead to the
    longest vectors, and none to some of the shortest, which are never found. Searches are by the
    inner product all the same.
    """
    if not is_graph(index):
        yield
        return
    threads = faiss.omp_get_max_threads()
    faiss.omp_set_num_threads(1)
    if distances:
        index.storage.metric_type, index.hnsw.is_similarity = faiss.METRIC_L2, False
    try:
        yield
    finally:
        index.storage.metric_type = faiss.METRIC_INNER_PRODUCT
        index.hnsw.is_similarity = True
        faiss.omp_set_num_threads(threads)


def _training_vectors(lists: int, dim: int) -> int:
    """Return how many vectors are used for training, if there are enough."""
    wanted = max(_LEAST_TRAINING_VECTORS, _TRAINING_VECTORS_PER_LIST * lists)
    return min(wanted, _TRAINING_BYTES // (4 * dim))


def _sample(embeddings: NDArray[np.float32], lists: int) -> NDArray[np.float32]:
    """Copy a sample of vectors for training, always the same one."""
    count = _training_vectors(lists, embeddings.shape[1])
    if count >= len(embeddings):
        return np.ascontiguousarray(embeddings)
    rows = np.sort(np.random.default_rng(0).choice(len(embeddings), count, replace=False))
    return embeddings[rows]
