"""Requests to Qdrant in the models of `qdrant-client`, and its responses."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, cast

import numpy as np
from qdrant_client import models
from qdrant_client.http.models import QueryResponse

from aladin_index.engines.client import EngineQuery
from aladin_index.engines.qdrant.points import conditions
from aladin_index.engines.qdrant.store import (
    MATCH,
    TOKENS,
    CollectionShape,
    Point,
    QdrantSettings,
    ScoredPoint,
)

# A server refuses messages of more than 32 MiB unless it is told otherwise, and holds each of
# them in memory several times over while it reads it.
_MESSAGE_BYTES = 8 * 2**20
# Tokens are rounded, by far less than a score of float32 resolves: half the message.
_TOKEN_DECIMALS = 8
# Of a number in JSON, its comma included.
_EMBEDDING_CHARS, _TOKEN_CHARS = 23, 13
# Kilobytes of vectors of a segment from which on there is a graph, which is Qdrant's default; 0
# leaves all as it is while a collection is filled.
_INDEXED_FROM_KB, _NEVER = 10_000, 0


def vectors_of(shape: CollectionShape, settings: QdrantSettings) -> dict[str, models.VectorParams]:
    """Describe the vectors of a collection."""
    links = settings.m if settings.index == "hnsw" else 0
    vectors = {
        MATCH: models.VectorParams(
            size=shape.embedding_dim,
            distance=models.Distance.DOT,
            hnsw_config=models.HnswConfigDiff(m=links, ef_construct=settings.ef_construct),
        )
    }
    if shape.token_vectors != "none":
        vectors[TOKENS] = models.VectorParams(
            size=shape.token_dim,
            distance=models.Distance.DOT,
            datatype=models.Datatype(shape.token_vectors),
            multivector_config=models.MultiVectorConfig(
                comparator=models.MultiVectorComparator.MAX_SIM
            ),
            # Tokens are scored, never searched, and too many for the memory.
            hnsw_config=models.HnswConfigDiff(m=0),
            on_disk=True,
        )
    return vectors


def indexing(*, now: bool) -> models.OptimizersConfigDiff:
    """Say whether graphs are to be built, or only once all items are there."""
    return models.OptimizersConfigDiff(indexing_threshold=_INDEXED_FROM_KB if now else _NEVER)


def point_structs(points: Sequence[Point]) -> Iterator[list[models.PointStruct]]:
    """Yield points in messages of a size that a server takes, each with at least one."""
    message: list[models.PointStruct] = []
    size_bytes = 0
    for point in points:
        point_bytes = _size_bytes(point)
        if message and size_bytes + point_bytes > _MESSAGE_BYTES:
            yield message
            message, size_bytes = [], 0
        message.append(_struct(point))
        size_bytes += point_bytes
    if message:
        yield message


def search_requests(
    query: EngineQuery, fields: Sequence[str], parameters: models.SearchParams | None
) -> list[models.QueryRequest]:
    """Ask for the nearest points, and with words for their MaxSim, too.

    A query that goes on to MaxSim does not return the scores that it began with, so it comes
    beside the first: the server does the first stage twice, which costs less than a second
    request.
    """
    passes = None
    if query.filter is not None:
        passes = models.Filter.model_validate(conditions(query.filter))
    nearest: dict[str, Any] = {
        "query": query.embedding.tolist(),
        "using": MATCH,
        "filter": passes,
        "params": parameters,
        "limit": query.count,
    }
    requests = [models.QueryRequest(**nearest, with_payload=list(fields))]
    if query.words is not None:
        requests.append(
            models.QueryRequest(
                prefetch=models.Prefetch(**nearest),
                query=query.words.tolist(),
                using=TOKENS,
                limit=query.count,
                with_payload=False,
            )
        )
    return requests


def scored_points(answers: Sequence[QueryResponse]) -> list[ScoredPoint]:
    """Read the answers to `search_requests`.

    The two searches may find different points, should one be changed in between, or the graph be
    walked by another way: a point that only the second found is left out.
    """
    aligned = {point.id: point.score for answer in answers[1:] for point in answer.points}
    return [
        ScoredPoint(dict(point.payload or {}), point.score, aligned.get(point.id))
        for point in answers[0].points
    ]


def point_of_record(record: models.Record) -> Point:
    """Read a point that was asked for by its key."""
    vectors = cast(dict[str, Any], record.vector or {})
    embedding = np.asarray(vectors[MATCH], np.float32) if MATCH in vectors else None
    return Point(str(record.id), dict(record.payload or {}), embedding)


def _struct(point: Point) -> models.PointStruct:
    vectors: dict[str, Any] = {}
    if point.embedding is not None:
        vectors[MATCH] = point.embedding.tolist()
    if point.tokens is not None:
        vectors[TOKENS] = point.tokens.astype(np.float64).round(_TOKEN_DECIMALS).tolist()
    return models.PointStruct(id=point.key, vector=vectors, payload=point.payload)


def _size_bytes(point: Point) -> int:
    size_bytes = sum(len(str(value)) for value in point.payload.values())
    if point.embedding is not None:
        size_bytes += _EMBEDDING_CHARS * point.embedding.size
    if point.tokens is not None:
        size_bytes += _TOKEN_CHARS * point.tokens.size
    return size_bytes
