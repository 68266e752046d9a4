"""What Qdrant Edge is asked, in its own classes."""

from __future__ import annotations

from typing import Any, cast

import numpy as np
import qdrant_edge as edge
from numpy.typing import NDArray

from index.items.filter_tree import Filter
from index.remote.qdrant.conditions import conditions
from index.remote.qdrant.point_store import MATCH, TOKENS, CollectionShape, Point
from index.remote.qdrant.settings import QdrantSettings

# Kilobytes of vectors from which on a graph is walked: Qdrant's own default.
_FULL_SCAN_KB = 10_000
_DATATYPES = {
    "float32": edge.VectorStorageDatatype.Float32,
    "float16": edge.VectorStorageDatatype.Float16,
}


def edge_vectors(
    shape: CollectionShape | None, settings: QdrantSettings
) -> dict[str, edge.EdgeVectorParams]:
    """Describe the vectors of a collection; Edge has none without any, but points without."""
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
            # Tokens are scored, never searched, and too many for the memory.
            hnsw_config=edge.HnswIndexConfig(0, settings.ef_construct, _FULL_SCAN_KB),
            memory=edge.Memory.Cold,
        )
    return vectors


def nearest(query: NDArray[np.float32], using: str) -> edge.Query:
    """Ask for what is nearest to a vector, or to many."""
    # The annotations of Edge name lists only; arrays are read without a copy for each number.
    vectors = cast(list[float], np.ascontiguousarray(query, dtype=np.float32))
    return edge.Query.Nearest(vectors, using=using)


def edge_point(point: Point) -> edge.Point:
    """Make a point to be put in."""
    vectors: dict[str, Any] = {}
    if point.embedding is not None:
        vectors[MATCH] = np.ascontiguousarray(point.embedding, dtype=np.float32)
    if point.tokens is not None:
        vectors[TOKENS] = np.ascontiguousarray(point.tokens, dtype=np.float32)
    return edge.Point(point.key, vectors, point.payload)


def edge_filter(filter: Filter) -> edge.Filter:
    """Translate a filter.

    Raises:
        InputError: it orders texts, which Qdrant cannot do.
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
