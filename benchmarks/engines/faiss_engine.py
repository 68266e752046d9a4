"""Raw FAISS, alone and with the re-ranking that one writes in NumPy."""

from __future__ import annotations

import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from aladin_index.ann.faiss_library import faiss
from benchmarks.engines.task import CANDIDATES, TOP, Task, best_of, fastest, open_photos

_INDEX = "index.faiss"
_EF_CONSTRUCTION = 200
_WIDTHS = (100, 150, 200, 300, 400, 600, 800, 1200)


def build(folder: Path, photos: Path) -> dict[str, Any]:
    """Build a graph, and copy nothing: tokens are read from the photos' own array."""
    embeddings, _ = open_photos(photos)
    folder.mkdir()
    started = time.perf_counter()
    index = faiss.index_factory(embeddings.shape[1], "HNSW32,Flat", faiss.METRIC_INNER_PRODUCT)
    index.hnsw.efConstruction = _EF_CONSTRUCTION
    index.add(np.ascontiguousarray(embeddings))
    faiss.write_index(index, str(folder / _INDEX))
    return {"build_s": time.perf_counter() - started}


class FaissEngine:
    """Searches a FAISS graph; the graph's storage is searched exactly where that is faster."""

    def __init__(self, folder: Path, reranks: bool) -> None:
        """Open the index in `folder`; `reranks` adds late interaction over float32 tokens."""
        self._graph = faiss.read_index(str(folder / _INDEX))
        self._flat = faiss.downcast_index(self._graph.storage)
        self._reranks = reranks
        self._width: int | None = None

    def settings(self) -> str:
        """Say how it searches."""
        first = "Flat" if self._width is None else f"HNSW32 width {self._width}"
        return f"{first}, float32 tokens" if self._reranks else f"{first}, no second stage"

    def tune(self, task: Task) -> None:
        """Choose the fastest search parameters that reach the recall wanted."""
        options: list[int | None] = [None, *_WIDTHS]
        self._width = fastest(
            task, options, lambda width, query: self._find(query, CANDIDATES, width)
        )

    def candidates(self, embedding: NDArray[np.float32]) -> Sequence[int]:
        """Find the `CANDIDATES` nearest photos."""
        return self._find(embedding, CANDIDATES, self._width).tolist()

    def search(self, task: Task, query: int, filtered: bool) -> Sequence[int]:
        """Find the `TOP` photos for a query, best first; its window alone where `filtered`."""
        window = task.windows[query] if filtered else None
        embedding = task.queries.embeddings[query]
        rows = self._find(embedding, CANDIDATES if self._reranks else TOP, self._width, window)
        if self._reranks:
            rows = best_of(task.queries.words[query], rows, task.tokens)
        return rows.tolist()

    def _find(
        self,
        query: NDArray[np.float32],
        count: int,
        width: int | None,
        window: range | None = None,
    ) -> NDArray[np.int64]:
        selector = None if window is None else faiss.IDSelectorRange(window.start, window.stop)
        if width is None:
            index, parameters = self._flat, faiss.SearchParameters(sel=selector)
        else:
            index = self._graph
            parameters = faiss.SearchParametersHNSW(efSearch=width, sel=selector)
        _, rows = index.search(query[None], count, params=parameters)
        found: NDArray[np.int64] = rows[0]
        return found[found >= 0]
