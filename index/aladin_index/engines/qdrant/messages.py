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

# By default a server rejects messages of more than 32 MiB; it holds each several times in memory
# while reading it.
_MESSAGE_BYTES = 8 * 2**20
# Tokens are rounded by far less than the resolution of a float32 score, which halves the message.
_TOKEN_DECIMALS = 8
# Bytes of a number in JSON, comma included.
_EMBEDDING_CHARS, _TOKEN_CHARS = 23, 13
# Size of a segment's vectors, in kilobytes, from which a graph is built: Qdrant's default. With 0,
# nothing is built while a collection is filled.
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
            # Tokens are scored, never searched, and too many to be kept in memory.
            hnsw_config=models.HnswConfigDiff(m=0),
            on_disk=True,
        )
    return vectors


def indexing(*, now: bool) -> models.OptimizersConfigDiff:
    """Return the configuration that builds graphs, or that defers them until the end."""
    return models.OptimizersConfigDiff(indexing_threshold=_INDEXED_FROM_KB if now else _NEVER)


def point_structs(points: Sequence[Point]) -> Iterator[list[models.PointStruct]]:
    """Yield points in messages of a size that a server accepts, at least one point each."""
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
    """Request the nearest points and, if there are words, their MaxSim scores.

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
    """Convert the responses to `search_requests`.

    The two searches may find different points, should one be changed in between, or the graph be
    walked by another way: a point that only the second found is left out.
    """
    aligned = {point.id: point.score for answer in answers[1:] for point in answer.points}
    return [
        ScoredPoint(dict(point.payload or {}), point.score, aligned.get(point.id))
        for point in answers[0].points
    ]


def point_of_record(record: models.Record) -> Point:
    """Convert a point that was requested by its key."""
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
