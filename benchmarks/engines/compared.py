"""The engines of the comparison: this project, raw FAISS, and Qdrant's engine in process.

This project's index is built by the import and searched as by the service. FAISS runs alone, and
with re-ranking in NumPy as a user would write it. Qdrant runs a dense prefetch and MaxSim over
multivectors in one call.
"""

from __future__ import annotations

import importlib
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from aladin_index.ann import faiss
from aladin_index.generations.reader import open_index
from aladin_index.search.collection import FirstStageQuery
from aladin_index.search.options import SearchOptions
from aladin_index.search.query import Term
from aladin_index.search.searcher import TwoStageSearcher
from aladin_index.settings import BuildSettings
from benchmarks.engines.task import CANDIDATES, TOP, Task, best_of, fastest, open_photos
from benchmarks.lib.small_collection import text_encoding
from benchmarks.lib.synthetic import SyntheticPhotos, write_synthetic_index
from benchmarks.lib.synthetic_sources import EMBEDDING_DIM, TOKEN_DIM, find_source

_FAISS_FILE = "index.faiss"
_EF_CONSTRUCTION = 200
_WIDTHS = (100, 150, 200, 300, 400, 600, 800, 1200)

_POINTS_AT_A_TIME = 500
_FULL_SCAN = {"full_scan_threshold": 10_000}  # KB of vectors that pass a filter, its default


def build_aladin(folder: Path, items: int, source: Path | None) -> dict[str, Any]:
    """Build the index with int8 tokens; return the time in seconds."""
    photos = SyntheticPhotos(find_source(source))
    seconds = write_synthetic_index(folder, photos, items, BuildSettings(token_dtype="int8"))
    return {"build_s": sum(took for stage, took in seconds.items() if stage != "draw")}


class AladinEngine:
    """Searches in two stages, ranked by the alignment alone."""

    def __init__(self, folder: Path) -> None:
        """Open the index in `folder`."""
        self._index = open_index(folder)
        self._index.warm()  # as `serve --warm` does; Qdrant reads its files ahead unasked
        self._searcher = TwoStageSearcher(self._index)
        self._collection = self._index.collection("images")

    def settings(self) -> str:
        """Describe the search settings."""
        ann = self._collection.entry.ann
        width = "" if ann.search_width is None else f" width {ann.search_width}"
        return f"{ann.factory}{width}, int8 tokens"

    def tune(self, task: Task) -> None:
        """Keep the build's choice for a recall of 0.99, its default."""

    def candidates(self, embedding: NDArray[np.float32]) -> Sequence[int]:
        """Find the `CANDIDATES` nearest photos."""
        return self._collection.order(
            FirstStageQuery(embedding, CANDIDATES, CANDIDATES)
        ).rows.tolist()

    def search(self, task: Task, query: int, filtered: bool) -> Sequence[int]:
        """Find the `TOP` photos for a query, best first; only in its window if `filtered`."""
        window = task.windows[query]
        encoding = text_encoding(task.queries.embeddings[query], task.queries.words[query])
        result = self._searcher.search(
            Term(encoding, "text"),
            "images",
            SearchOptions(
                k=TOP,
                candidates=CANDIDATES,
                fusion=1.0,
                filter={"number": {"gte": window.start, "lt": window.stop}} if filtered else {},
            ),
        )
        return [int(hit.metadata["number"]) for hit in result.hits]


def build_faiss(folder: Path, photos: Path) -> dict[str, Any]:
    """Build a graph without copying tokens: they are read from the photos' own array."""
    embeddings, _ = open_photos(photos)
    folder.mkdir()
    started = time.perf_counter()
    index = faiss.index_factory(embeddings.shape[1], "HNSW32,Flat", faiss.METRIC_INNER_PRODUCT)
    index.hnsw.efConstruction = _EF_CONSTRUCTION
    index.add(np.ascontiguousarray(embeddings))
    faiss.write_index(index, str(folder / _FAISS_FILE))
    return {"build_s": time.perf_counter() - started}


class FaissEngine:
    """Searches a FAISS graph; scans the graph's storage exhaustively where that is faster."""

    def __init__(self, folder: Path, reranks: bool) -> None:
        """Open the index in `folder`; `reranks` adds late interaction over float32 tokens."""
        self._graph = faiss.read_index(str(folder / _FAISS_FILE))
        self._flat = faiss.downcast_index(self._graph.storage)
        self._reranks = reranks
        self._width: int | None = None

    def settings(self) -> str:
        """Describe the search settings."""
        first = "Flat" if self._width is None else f"HNSW32 width {self._width}"
        return f"{first}, float32 tokens" if self._reranks else f"{first}, no second stage"

    def tune(self, task: Task) -> None:
        """Choose the fastest search parameters that reach the required recall."""
        options: list[int | None] = [None, *_WIDTHS]
        self._width = fastest(
            task, options, lambda width, query: self._find(query, CANDIDATES, width)
        )

    def candidates(self, embedding: NDArray[np.float32]) -> Sequence[int]:
        """Find the `CANDIDATES` nearest photos."""
        return self._find(embedding, CANDIDATES, self._width).tolist()

    def search(self, task: Task, query: int, filtered: bool) -> Sequence[int]:
        """Find the `TOP` photos for a query, best first; only in its window if `filtered`."""
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


TokenForm = Literal["float32", "8 bits"]


def load_qdrant() -> Any:
    """Import the Qdrant engine.

    Raises:
        ImportError: If the package is not installed.
    """
    return importlib.import_module("qdrant_edge")


def build_qdrant(folder: Path, photos: Path, form: TokenForm) -> dict[str, Any]:
    """Insert all photos, index a field for the filter, and wait for the optimizer."""
    engine = load_qdrant()
    embeddings, tokens = open_photos(photos)
    folder.mkdir()
    started = time.perf_counter()
    shard = engine.EdgeShard.create(str(folder), engine.EdgeConfig(vectors=_vectors(engine, form)))
    for start in range(0, len(embeddings), _POINTS_AT_A_TIME):
        numbers = range(start, min(start + _POINTS_AT_A_TIME, len(embeddings)))
        points = [
            engine.Point(
                number,
                {"dense": embeddings[number], "tokens": tokens[number]},
                _payload(number),
            )
            for number in numbers
        ]
        shard.update(engine.UpdateOperation.upsert_points(points))
    shard.update(
        engine.UpdateOperation.create_field_index("number", engine.PayloadSchemaType.Integer)
    )
    shard.optimize()
    shard.flush()
    shard.close()
    return {"build_s": time.perf_counter() - started}


class QdrantEngine:
    """Searches a shard of Qdrant's engine on one thread."""

    def __init__(self, folder: Path, form: TokenForm) -> None:
        """Load the shard in `folder`."""
        self._engine = load_qdrant()
        config = self._engine.EdgeConfig(_vectors(self._engine, form), max_search_threads=1)
        self._shard = self._engine.EdgeShard.load(str(folder), config)
        self._form = form
        self._width: int | None = None

    def settings(self) -> str:
        """Describe the search settings."""
        first = "exact" if self._width is None else f"HNSW32 width {self._width}"
        return f"{first}, tokens of {self._form}"

    def tune(self, task: Task) -> None:
        """Choose the fastest search parameters that reach the required recall."""
        options: list[int | None] = [None, *_WIDTHS]
        self._width = fastest(task, options, self._find)

    def candidates(self, embedding: NDArray[np.float32]) -> Sequence[int]:
        """Find the `CANDIDATES` nearest photos."""
        return self._find(self._width, embedding)

    def search(self, task: Task, query: int, filtered: bool) -> Sequence[int]:
        """Find the `TOP` photos for a query, best first; only in its window if `filtered`."""
        engine, window = self._engine, task.windows[query]
        passes = None
        if filtered:
            wanted = engine.RangeFloat(gte=window.start, lt=window.stop)
            passes = engine.Filter(must=[engine.FieldCondition("number", range=wanted)])
        request = engine.QueryRequest(
            limit=TOP,
            query=engine.Query.Nearest(task.queries.words[query], using="tokens"),
            prefetches=[
                engine.Prefetch(
                    limit=CANDIDATES,
                    query=engine.Query.Nearest(task.queries.embeddings[query], using="dense"),
                    params=self._parameters(self._width),
                    filter=passes,
                )
            ],
            with_payload=True,
        )
        return [point.payload["number"] for point in self._shard.query(request)]

    def _find(self, width: int | None, query: NDArray[np.float32]) -> list[int]:
        request = self._engine.QueryRequest(
            limit=CANDIDATES,
            query=self._engine.Query.Nearest(query, using="dense"),
            params=self._parameters(width),
        )
        return [point.id for point in self._shard.query(request)]

    def _parameters(self, width: int | None) -> Any:
        if width is None:
            return self._engine.SearchParams(exact=True)
        return self._engine.SearchParams(hnsw_ef=width)


def _vectors(engine: Any, form: TokenForm) -> dict[str, Any]:
    dot, stored = engine.Distance.Dot, engine.VectorStorageDatatype
    return {
        "dense": engine.EdgeVectorParams(
            size=EMBEDDING_DIM,
            distance=dot,
            hnsw_config=engine.HnswIndexConfig(m=32, ef_construct=200, **_FULL_SCAN),
        ),
        # Tokens are only scored, never searched, so they need no graph (m = 0).
        "tokens": engine.EdgeVectorParams(
            size=TOKEN_DIM,
            distance=dot,
            multivector_config=engine.MultiVectorConfig(engine.MultiVectorComparator.MaxSim),
            hnsw_config=engine.HnswIndexConfig(m=0, ef_construct=200, **_FULL_SCAN),
            datatype=stored.Float32 if form == "float32" else stored.Turbo8,
        ),
    }


def _payload(number: int) -> dict[str, object]:
    """Return the metadata that `benchmarks.lib.synthetic` gives a photo."""
    return {"year": 2000 + number % 20, "number": number, "city": "Pisa"}
