"""The first stage's FAISS index: which kind, how it is built, and one way to search it."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from aladin.errors import ConfigError, IndexCorruptError
from aladin.progress import Progress
from index.faiss_library import faiss
from index.selection import Selection

# Comparing with 50,000 vectors of 256 values takes 3 to 4 ms on one core, and never misses.
EXACT_UP_TO = 50_000
# From here on a graph takes many minutes to build and three times the memory of IVF,SQ8.
GRAPH_UP_TO = 1_000_000
_TRAINING_VECTORS_PER_LIST = 64
_EF_CONSTRUCTION = 100
_VECTORS_AT_A_TIME = 10_000


def choose_factory(ann: str, count: int) -> str:
    """Return the FAISS factory string for a side.

    Args:
        ann: "auto", "exact", or a factory string.
        count: number of vectors.
    """
    if ann == "exact":
        return "Flat"
    if ann != "auto":
        return ann
    if count <= EXACT_UP_TO:
        return "Flat"
    if count < GRAPH_UP_TO:
        return "HNSW32,Flat"
    lists = 2 ** round(math.log2(4 * math.sqrt(count)))
    return f"IVF{lists},SQ8"


def check_factory(factory: str, dim: int, count: int) -> None:
    """Refuse, before any work, a factory string that cannot be built.

    Raises:
        ConfigError: FAISS does not know it, or it needs more vectors than there are.
    """
    index = _create(factory, dim)
    if isinstance(index, (faiss.IndexIDMap, faiss.IndexIDMap2)):
        raise ConfigError(f"ann: {factory!r} has ids of its own, which rows replace here")
    lists = _ivf_lists(index)
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
        if not index.is_trained:
            lists = _ivf_lists(index) or 1024
            index.train(_sample(embeddings, _TRAINING_VECTORS_PER_LIST * lists))
        progress.start(count, "vectors")
        for start in range(0, count, _VECTORS_AT_A_TIME):
            part = np.ascontiguousarray(embeddings[start : start + _VECTORS_AT_A_TIME])
            index.add(part)
            progress.advance(len(part))
    except RuntimeError as error:
        raise ConfigError(f"ann: {factory!r} cannot take these vectors ({error})") from error
    return index


def write_ann(path: Path, index: Any) -> None:
    """Write a FAISS index.

    Raises:
        OSError: the disk is full, or cannot be written.
    """
    # Python writes: FAISS's own writer does not say why it could not.
    with path.open("wb") as file:
        faiss.write_index(index, faiss.PyCallbackIOWriter(file.write))


class AnnIndex:
    """Searches a FAISS index; nothing shared is changed by a search."""

    def __init__(self, index: Any, search_width: int | None, oversample: float = 1.0) -> None:
        """Wrap an index.

        Args:
            index: of FAISS.
            search_width: efSearch of a graph, nprobe of inverted lists; None for others.
            oversample: rows to ask for, for each one wanted.
        """
        self._index = index
        self.search_width = search_width
        self.oversample = oversample
        self.count = int(index.ntotal)
        self.dim = int(index.d)

    @classmethod
    def open(cls, path: Path, search_width: int | None, oversample: float = 1.0) -> AnnIndex:
        """Open an index file.

        Raises:
            IndexCorruptError: not a FAISS index.
        """
        # Vectors and graphs are mapped. Inverted lists are read: FAISS can map them too, but then
        # starts threads at every search to fetch their pages ahead.
        try:
            index = faiss.read_index(str(path), faiss.IO_FLAG_MMAP_IFC)
        except RuntimeError as error:
            raise IndexCorruptError(path, f"not a FAISS index ({error})") from error
        return cls(index, search_width, oversample)

    @property
    def faiss_index(self) -> Any:
        """FAISS's index, not to be changed."""
        return self._index

    @property
    def widths(self) -> list[int]:
        """The search widths worth trying, ascending; none where there is nothing to choose."""
        lists = _ivf_lists(self._index)
        if lists is not None:
            return [width for width in (1, 2, 4, 8, 16, 32, 64, 128, 256, 512) if width <= lists]
        if _is_graph(self._index):
            return [64, 128, 256, 512, 1024]
        return []

    def search(
        self,
        query: NDArray[np.float32],
        count: int,
        allowed: Selection | None = None,
        search_width: int | None = None,
        oversample: float | None = None,
    ) -> NDArray[np.int64]:
        """Find near rows.

        Args:
            query: (dim,).
            count: rows wanted.
            allowed: rows to choose from; None: all. The search is widened by as much as they
                are rarer, so that it still finds `count`.
            search_width: overrides the index's own.
            oversample: overrides the index's own.

        Returns:
            At most `oversample` times `count` rows, in no order to rely on.
        """
        count = math.ceil(count * (oversample or self.oversample))
        share = 1.0 if allowed is None else max(allowed.count, 1) / self.count
        width = search_width or self.search_width
        if width is not None:
            # A graph cannot return more than it keeps on the way.
            floor = count if _is_graph(self._index) else 1
            width = min(math.ceil(max(width, floor) / share), self.count)
        selector = None if allowed is None else faiss.IDSelectorBitmap(allowed.bits)
        parameters = _parameters(self._index, width, selector)
        _, rows = self._index.search(query[None], min(count, self.count), params=parameters)
        found: NDArray[np.int64] = rows[0]
        return found[found >= 0]


def _create(factory: str, dim: int) -> Any:
    try:
        index: Any = faiss.index_factory(dim, factory, faiss.METRIC_INNER_PRODUCT)
    except RuntimeError as error:
        reason = str(error).rsplit(": ", 1)[-1]
        raise ConfigError(f"ann: {factory!r} is no FAISS factory string ({reason})") from error
    if _is_graph(index):
        index.hnsw.efConstruction = _EF_CONSTRUCTION
    return index


def _parameters(index: Any, width: int | None, selector: Any) -> Any:
    """Build the search parameters that this kind of index understands."""
    if isinstance(index, faiss.IndexPreTransform):
        inner = _parameters(faiss.downcast_index(index.index), width, selector)
        return faiss.SearchParametersPreTransform(index_params=inner)
    if isinstance(index, faiss.IndexRefine):
        inner = _parameters(faiss.downcast_index(index.base_index), width, selector)
        return faiss.IndexRefineSearchParameters(k_factor=10, base_index_params=inner)
    if isinstance(index, faiss.IndexIVF):
        return faiss.SearchParametersIVF(nprobe=min(width or 1, index.nlist), sel=selector)
    if _is_graph(index):
        return faiss.SearchParametersHNSW(efSearch=width or 64, sel=selector)
    return faiss.SearchParameters(sel=selector)


def _is_graph(index: Any) -> bool:
    return isinstance(index, faiss.IndexHNSW)


def _ivf_lists(index: Any) -> int | None:
    """Return the number of inverted lists, also of an index inside another; None: no IVF."""
    ivf = faiss.try_extract_index_ivf(index)
    return None if ivf is None else int(ivf.nlist)


def _sample(embeddings: NDArray[np.float32], count: int) -> NDArray[np.float32]:
    if count >= len(embeddings):
        return np.ascontiguousarray(embeddings)
    rows = np.sort(np.random.default_rng(0).choice(len(embeddings), count, replace=False))
    return np.ascontiguousarray(embeddings[rows])
