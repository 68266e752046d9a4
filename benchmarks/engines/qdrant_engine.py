"""Qdrant's engine in this process: a dense prefetch and MaxSim over multivectors, in one call."""

from __future__ import annotations

import importlib
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from benchmarks.engines.task import CANDIDATES, TOP, Task, fastest, open_photos
from benchmarks.lib.synthetic_sources import EMBEDDING_DIM, TOKEN_DIM

TokenForm = Literal["float32", "8 bits"]

_POINTS_AT_A_TIME = 500
_WIDTHS = (100, 150, 200, 300, 400, 600, 800, 1200)
_FULL_SCAN = {"full_scan_threshold": 10_000}  # KB of vectors that pass a filter, its default


def qdrant() -> Any:
    """Import the engine.

    Raises:
        ImportError: it is not installed.
    """
    return importlib.import_module("qdrant_edge")


def build(folder: Path, photos: Path, form: TokenForm) -> dict[str, Any]:
    """Insert all photos, index a field for the filter, and wait for the optimizer."""
    engine = qdrant()
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
        self._engine = qdrant()
        config = self._engine.EdgeConfig(_vectors(self._engine, form), max_search_threads=1)
        self._shard = self._engine.EdgeShard.load(str(folder), config)
        self._form = form
        self._width: int | None = None

    def settings(self) -> str:
        """Say how it searches."""
        first = "exact" if self._width is None else f"HNSW32 width {self._width}"
        return f"{first}, tokens of {self._form}"

    def tune(self, task: Task) -> None:
        """Choose the fastest search parameters that reach the recall wanted."""
        options: list[int | None] = [None, *_WIDTHS]
        self._width = fastest(task, options, self._find)

    def candidates(self, embedding: NDArray[np.float32]) -> Sequence[int]:
        """Find the `CANDIDATES` nearest photos."""
        return self._find(self._width, embedding)

    def search(self, task: Task, query: int, filtered: bool) -> Sequence[int]:
        """Find the `TOP` photos for a query, best first; its window alone where `filtered`."""
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
        # Tokens are scored, never searched: no graph (m = 0).
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
