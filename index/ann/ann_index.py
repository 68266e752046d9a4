"""Searches the first stage's FAISS index, whichever kind it is, in one way."""

from __future__ import annotations

import math
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from index.ann.faiss_library import faiss
from index.ann.file import read_ann
from index.selection import Selection

# Comparing with 50,000 vectors of 256 values takes 1 to 2 ms on one core, and never misses.
EXACT_UP_TO = 50_000
# Powers of two: a search takes about twice as long from one to the next.
_LISTS_SEARCHED = tuple(2**power for power in range(11))
_GRAPH_WIDTHS = (64, 128, 256, 512, 1024)


class AnnIndex:
    """Searches a FAISS index; nothing shared is changed by a search."""

    def __init__(
        self,
        index: Any,
        search_width: int | None,
        oversample: float = 1.0,
        file: Path | None = None,
    ) -> None:
        """Wrap an index.

        Args:
            index: of FAISS.
            search_width: efSearch of a graph, nprobe of inverted lists; None for others.
            oversample: rows to ask for, for each one wanted.
            file: that it was read from; None: it was built in memory.
        """
        self._index = index
        self.search_width = search_width
        self.oversample = oversample
        self.file = file
        self.count = int(index.ntotal)
        self.dim = int(index.d)

    @classmethod
    def open(cls, path: Path, search_width: int | None, oversample: float = 1.0) -> AnnIndex:
        """Open an index file, see `index.ann.file`.

        Raises:
            IndexCorruptError: not a FAISS index, or a damaged one.
        """
        return cls(read_ann(path), search_width, oversample, path)

    @property
    def faiss_index(self) -> Any:
        """FAISS's index, not to be changed."""
        return self._index

    @property
    def widths(self) -> list[int]:
        """The search widths worth trying, ascending; none where there is nothing to choose."""
        lists = ivf_lists(self._index)
        if lists is not None:
            return [width for width in _LISTS_SEARCHED if width < lists] + [lists]
        return list(_GRAPH_WIDTHS) if is_graph(self._index) else []

    @cached_property
    def keeps_vectors(self) -> bool:
        """Whether its scores are the inner products: asking for more rows is no use then."""
        return isinstance(self._index, (faiss.IndexFlat, faiss.IndexIVFFlat, faiss.IndexHNSWFlat))

    @property
    def takes_selections(self) -> bool:
        """Whether it can search among some rows only; exhaustive fast scan cannot."""
        return not isinstance(self._index, faiss.IndexFastScan)

    def search(
        self,
        query: NDArray[np.float32],
        count: int,
        allowed: Selection | None = None,
    ) -> NDArray[np.int64]:
        """Find near rows.

        Args:
            query: (dim,).
            count: rows wanted.
            allowed: rows to choose from, where it `takes_selections`; None: all. The search is
                widened by as much as they are rarer, so that it still finds `count`.

        Returns:
            At most `oversample` times `count` rows, in no order to rely on.
        """
        return self.search_scored(query, count, allowed)[0]

    def search_scored(
        self,
        query: NDArray[np.float32],
        count: int,
        allowed: Selection | None = None,
    ) -> tuple[NDArray[np.int64], NDArray[np.float32]]:
        """Find near rows, see `search`, with their scores by what the index keeps.

        Returns:
            Rows and scores, best first, equal scores in any order. They are the inner products
            where the index `keeps_vectors`.
        """
        wanted = min(math.ceil(count * self.oversample), self.count)
        share = 1.0 if allowed is None else max(allowed.count, 1) / self.count
        width = self.search_width
        if width is not None:
            # A graph cannot return more than it keeps on the way.
            floor = wanted if is_graph(self._index) else 1
            width = min(math.ceil(max(width, floor) / share), self.count)
        selector = None if allowed is None else faiss.IDSelectorBitmap(allowed.bits)
        parameters = _parameters(self._index, width, selector)
        scores, rows = self._index.search(query[None], wanted, params=parameters)
        found: NDArray[np.int64] = rows[0]
        if found[-1] >= 0:
            return found, scores[0]
        filled = found >= 0  # places that it could not fill come last
        return found[filled], scores[0][filled]


def is_graph(index: Any) -> bool:
    """Tell whether a FAISS index is a graph."""
    return isinstance(index, faiss.IndexHNSW)


def ivf_lists(index: Any) -> int | None:
    """Return the number of inverted lists, also of an index inside another; None: no IVF."""
    ivf = faiss.try_extract_index_ivf(index)
    return None if ivf is None else int(ivf.nlist)


def _parameters(index: Any, width: int | None, selector: Any) -> Any:
    """Build the search parameters that this kind of index understands; None: there are none."""
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
