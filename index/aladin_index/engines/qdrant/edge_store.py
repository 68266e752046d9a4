"""Points stored by Qdrant Edge: Qdrant's engine in this process, one shard per collection.

FOLDER/
    aliases.json       maps names to collections
    COLLECTION/        a shard

Edge has one shard, no replicas and no aliases. It builds graphs only on request: points inserted
after `optimise` are compared one by one.
"""

from __future__ import annotations

import json
import shutil
import threading
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, TypeVar, cast

import numpy as np
import qdrant_edge as edge
from numpy.typing import NDArray

from aladin_index.engines.client import EngineFirstStage, EngineQuery
from aladin_index.engines.qdrant.points import conditions
from aladin_index.engines.qdrant.store import (
    MATCH,
    TOKENS,
    CollectionShape,
    FieldKind,
    Point,
    QdrantSettings,
    ScoredPoint,
)
from aladin_index.items.filters import Filter
from aladin_network.errors import EngineError, EngineUnavailableError
from aladin_network.files import make_folder, sync, write_json

# Size of the vectors, in kilobytes, from which a graph is built: Qdrant's own default.
_FULL_SCAN_KB = 10_000
_DATATYPES = {
    "float32": edge.VectorStorageDatatype.Float32,
    "float16": edge.VectorStorageDatatype.Float16,
}

_ALIASES = "aliases.json"
# Suffix of folders that are being created or removed.
_PARTIAL = ".partial"
_POINTS_AT_A_TIME = 500
_LOCK_HELD = "WouldBlock"
_FIELD_KINDS: dict[FieldKind, edge.PayloadSchemaType] = {
    "keyword": edge.PayloadSchemaType.Keyword,
    "float": edge.PayloadSchemaType.Float,
}

T = TypeVar("T")


def edge_vectors(
    shape: CollectionShape | None, settings: QdrantSettings
) -> dict[str, edge.EdgeVectorParams]:
    """Describe the vectors of a collection; Edge requires one even if points have none."""
    links = settings.m if settings.index == "hnsw" else 0
    vectors = {
        MATCH: edge.EdgeVectorParams(
            size=1 if shape is None else shape.embedding_dim,
            distance=edge.Distance.Dot,
            hnsw_config=edge.HnswIndexConfig(links, settings.ef_construct, _FULL_SCAN_KB),
        )
    }
    if shape is not None and shape.token_vectors != "none":
        vectors[TOKENS] = edge.EdgeVectorParams(
            size=shape.token_dim,
            distance=edge.Distance.Dot,
            datatype=_DATATYPES[shape.token_vectors],
            multivector_config=edge.MultiVectorConfig(edge.MultiVectorComparator.MaxSim),
            # Tokens are scored, never searched, and too many to be kept in memory.
            hnsw_config=edge.HnswIndexConfig(0, settings.ef_construct, _FULL_SCAN_KB),
            memory=edge.Memory.Cold,
        )
    return vectors


def nearest(query: NDArray[np.float32], using: str) -> edge.Query:
    """Build the query for the points nearest to a vector, or to a multivector."""
    # The annotations of Edge name only lists; arrays are read without a copy of each number.
    vectors = cast(list[float], np.ascontiguousarray(query, dtype=np.float32))
    return edge.Query.Nearest(vectors, using=using)


def edge_point(point: Point) -> edge.Point:
    """Convert a point for insertion."""
    vectors: dict[str, Any] = {}
    if point.embedding is not None:
        vectors[MATCH] = np.ascontiguousarray(point.embedding, dtype=np.float32)
    if point.tokens is not None:
        vectors[TOKENS] = np.ascontiguousarray(point.tokens, dtype=np.float32)
    return edge.Point(point.key, vectors, point.payload)


def edge_filter(filter: Filter) -> edge.Filter:
    """Translate a filter.

    Raises:
        InputError: If the filter compares texts by order, which Qdrant cannot do.
    """
    return _filter(conditions(filter))


def _filter(spec: dict[str, list[dict[str, Any]]]) -> edge.Filter:
    clauses: dict[str, Any] = {
        clause: [_condition(each) for each in parts] for clause, parts in spec.items()
    }
    return edge.Filter(**clauses)


def _condition(spec: dict[str, Any]) -> edge.Filter | edge.FieldCondition:
    if "key" not in spec:
        return _filter(spec)
    if "match" in spec:
        return edge.FieldCondition(spec["key"], match=edge.MatchAny(spec["match"]["any"]))
    return edge.FieldCondition(spec["key"], range=edge.RangeFloat(**spec["range"]))


class EdgeStore:
    """A `PointStore` based on shards of Qdrant Edge in a folder."""

    def __init__(self, engine: str, folder: Path, settings: QdrantSettings) -> None:
        """Use a folder; its shards are loaded on first use.

        Args:
            engine: Name of the vector database in messages.
            folder: Folder of the store; need not exist.
            settings: Settings of collections; those of replicas and shards are ignored.
        """
        self._engine = engine
        self._folder = folder
        self._settings = settings
        self._lock = threading.Lock()
        self._shards: dict[str, edge.EdgeShard] = {}

    def collections(self) -> list[str]:
        """List the collections."""
        if not self._folder.exists():
            return []
        return [
            path.name
            for path in self._folder.iterdir()
            if path.is_dir() and not path.name.endswith(_PARTIAL)
        ]

    def alias(self, name: str) -> str | None:
        """Return the collection of an alias, or None if there is no such alias."""
        return self._aliases().get(name)

    def set_alias(self, name: str, collection: str) -> None:
        """Point an alias to a collection, atomically."""
        self._shard(collection)
        with self._lock:
            write_json(self._folder / _ALIASES, self._aliases() | {name: collection})

    def create(self, collection: str, shape: CollectionShape | None) -> None:
        """Create an empty collection, unless it exists; without a shape it has no vectors."""
        path, partial = self._folder / collection, self._folder / (collection + _PARTIAL)
        with self._lock:
            if path.exists():
                return
            shutil.rmtree(partial, ignore_errors=True)
            make_folder(self._folder)
            config = edge.EdgeConfig(vectors=edge_vectors(shape, self._settings))
            shard = self._run(lambda: edge.EdgeShard.create(str(partial), config))
            self._run(shard.close)
            partial.rename(path)
            sync(self._folder)

    def drop(self, collection: str) -> None:
        """Remove a collection; a missing one is not an error."""
        path, partial = self._folder / collection, self._folder / (collection + _PARTIAL)
        with self._lock:
            shard = self._shards.pop(collection, None)
            if shard is not None:
                self._run(shard.close)
            shutil.rmtree(partial, ignore_errors=True)
            if path.exists():
                path.rename(partial)
                shutil.rmtree(partial)

    def index_field(self, collection: str, path: str, kind: FieldKind) -> None:
        """Index a field of the payload, unless it is indexed."""
        self._update(collection, edge.UpdateOperation.create_field_index(path, _FIELD_KINDS[kind]))

    def optimise(self, collection: str) -> None:
        """Index a collection; returns when that is done."""
        self._run(self._shard(collection).optimize)
        self._flush(collection)

    def upsert(self, collection: str, points: Sequence[Point]) -> None:
        """Insert points, replacing those with the same keys; durable on return."""
        for start in range(0, len(points), _POINTS_AT_A_TIME):
            part = [edge_point(point) for point in points[start : start + _POINTS_AT_A_TIME]]
            self._update(collection, edge.UpdateOperation.upsert_points(part))
        self._flush(collection)

    def delete(self, collection: str, keys: Sequence[str]) -> None:
        """Remove points; unknown keys are not an error."""
        self._update(collection, edge.UpdateOperation.delete_points(list(keys)))
        self._flush(collection)

    def count(self, collection: str) -> int:
        """Return the exact number of points."""
        shard = self._shard(collection)
        return self._run(lambda: shard.count(edge.CountRequest(exact=True)))

    @property
    def first_stage(self) -> EngineFirstStage:
        """Index kind and possible search widths of the collections."""
        return self._settings.first_stage

    def search(
        self, collection: str, query: EngineQuery, fields: Sequence[str]
    ) -> list[ScoredPoint]:
        """Find the points with the nearest embeddings, best first, see `PointStore`."""
        passes = None if query.filter is None else edge_filter(query.filter)
        parameters = edge.SearchParams(hnsw_ef=self._settings.candidates(query.count, query.width))
        first_stage = nearest(query.embedding, MATCH)
        requests = [
            edge.QueryRequest(
                limit=query.count,
                query=first_stage,
                filter=passes,
                params=parameters,
                with_payload=list(fields),
            )
        ]
        if query.words is not None:
            first = edge.Prefetch(
                limit=query.count, query=first_stage, filter=passes, params=parameters
            )
            requests.append(
                edge.QueryRequest(
                    limit=query.count,
                    query=nearest(query.words, TOKENS),
                    prefetches=[first],
                )
            )
        shard = self._shard(collection)
        found, *scored = self._run(lambda: shard.query_batch(edge.QueryBatchRequest(requests)))
        aligned = {point.id: point.score for points in scored for point in points}
        return [
            ScoredPoint(point.payload or {}, point.score, aligned.get(point.id)) for point in found
        ]

    def retrieve(
        self,
        collection: str,
        keys: Sequence[str],
        *,
        fields: Sequence[str],
        with_embeddings: bool = False,
    ) -> list[Point]:
        """Return points by key; unknown keys are omitted."""
        shard = self._shard(collection)
        records = self._run(
            lambda: shard.retrieve(list(keys), list(fields), [MATCH] if with_embeddings else False)
        )
        points: list[Point] = []
        for record in records:
            vectors = cast(dict[str, Any], record.vector or {})
            embedding = np.asarray(vectors[MATCH], np.float32) if MATCH in vectors else None
            points.append(Point(str(record.id), record.payload or {}, embedding))
        return points

    def scroll(self, collection: str, fields: Sequence[str]) -> Iterator[list[Point]]:
        """Yield every point once, in parts and in any order."""
        shard, offset = self._shard(collection), None
        while True:
            asked = edge.ScrollRequest(
                offset=offset, limit=_POINTS_AT_A_TIME, with_payload=list(fields)
            )
            records, offset = self._run(lambda asked=asked: shard.scroll(asked))
            yield [Point(str(record.id), record.payload or {}) for record in records]
            if offset is None:
                return

    def check_health(self) -> None:
        """Do nothing: the store is available as long as this process runs."""

    def close(self) -> None:
        """Close all shards; inserted points are on disk."""
        with self._lock:
            for shard in self._shards.values():
                self._run(shard.close)
            self._shards.clear()

    def _aliases(self) -> dict[str, str]:
        try:
            return json.loads((self._folder / _ALIASES).read_bytes())
        except FileNotFoundError:
            return {}
        except (OSError, ValueError) as error:
            raise EngineError(self._engine, f"{self._folder / _ALIASES}: {error}") from error

    def _shard(self, collection: str) -> edge.EdgeShard:
        with self._lock:
            if collection not in self._shards:
                path = self._folder / collection
                if not path.exists():
                    raise EngineError(self._engine, f"{path}: there is no such collection")
                self._shards[collection] = self._run(lambda: edge.EdgeShard.load(str(path)))
            return self._shards[collection]

    def _update(self, collection: str, operation: edge.UpdateOperation) -> None:
        shard = self._shard(collection)
        self._run(lambda: shard.update(operation))

    def _flush(self, collection: str) -> None:
        # The log alone survives the end of this process, but not a power failure.
        self._run(self._shard(collection).flush)

    def _run(self, call: Callable[[], T]) -> T:
        try:
            return call()
        except Exception as error:  # Edge has no errors of its own: it raises this very class.
            if _LOCK_HELD in str(error):
                reason = f"{self._folder}: is open in another process"
                raise EngineUnavailableError(self._engine, reason) from error
            raise EngineError(self._engine, str(error)) from error
