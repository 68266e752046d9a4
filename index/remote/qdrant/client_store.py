"""Points that `qdrant-client` keeps: on a server, or in its local mode in this process.

Both take the same requests. The local mode compares with every point, has no payload indexes and
holds all in memory: it is for tests and some thousands of items.
"""

from __future__ import annotations

import threading
from collections.abc import Generator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray
from qdrant_client import QdrantClient, models

from aladin.errors import EngineError
from index.items.filter_tree import Filter
from index.remote.qdrant.conditions import conditions
from index.remote.qdrant.point_store import (
    MATCH,
    TOKENS,
    CollectionShape,
    Point,
    ScoredPoint,
)


class ClientStore:
    """A `PointStore` over `qdrant_client.QdrantClient`."""

    def __init__(self, client: QdrantClient, *, local: bool) -> None:
        """Work with a client, which is closed with this.

        Args:
            client: of a server or in local mode.
            local: the client is in local mode.
        """
        self._client = client
        self._local = local
        # Local mode is not made for threads; a server's client is.
        self._turn: AbstractContextManager[Any] = threading.RLock() if local else nullcontext()

    def collections(self) -> list[str]:
        """List the collections."""
        with self._calling():
            return [each.name for each in self._client.get_collections().collections]

    def alias(self, name: str) -> str | None:
        """Return the collection that a name stands for; None: it stands for none."""
        with self._calling():
            aliases = self._client.get_aliases().aliases
        return next((each.collection_name for each in aliases if each.alias_name == name), None)

    def set_alias(self, name: str, collection: str) -> None:
        """Let a name stand for a collection from now on, in one step."""
        delete = models.DeleteAliasOperation(delete_alias=models.DeleteAlias(alias_name=name))
        create = models.CreateAliasOperation(
            create_alias=models.CreateAlias(collection_name=collection, alias_name=name)
        )
        with self._calling():
            self._client.update_collection_aliases([delete, create])

    def create(self, collection: str, shape: CollectionShape | None) -> None:
        """Make an empty collection, unless it is there; without a shape it has no vectors."""
        with self._calling():
            if self._client.collection_exists(collection):
                return
            self._client.create_collection(
                collection, vectors_config={} if shape is None else _vectors(shape)
            )

    def drop(self, collection: str) -> None:
        """Remove a collection; one that is not there is no error."""
        with self._calling():
            self._client.delete_collection(collection)

    def optimise(self, collection: str) -> None:
        """Index what is in a collection; returns when that is done."""

    def upsert(self, collection: str, points: Sequence[Point]) -> None:
        """Put points in, in the place of those with the same keys; kept when it returns."""
        if not points:
            return
        with self._calling():
            self._client.upsert(collection, [_sent(point) for point in points], wait=True)

    def delete(self, collection: str, keys: Sequence[str]) -> None:
        """Remove points; keys that are not there are no error."""
        if not keys:
            return
        with self._calling():
            self._client.delete(collection, models.PointIdsList(points=list(keys)), wait=True)

    def count(self, collection: str) -> int:
        """Return the exact number of points."""
        with self._calling():
            return self._client.count(collection, exact=True).count

    def search(
        self,
        collection: str,
        query: NDArray[np.float32],
        count: int,
        filter: Filter | None,
        *,
        fields: Sequence[str],
        words: NDArray[np.float32] | None = None,
    ) -> list[ScoredPoint]:
        """Find the points whose embeddings are nearest, best first, see `PointStore`."""
        passes = None if filter is None else models.Filter.model_validate(conditions(filter))
        nearest: dict[str, Any] = {
            "query": query.tolist(),
            "using": MATCH,
            "filter": passes,
            "limit": count,
        }
        requests = [models.QueryRequest(**nearest, with_payload=list(fields))]
        if words is not None:
            requests.append(
                models.QueryRequest(
                    prefetch=models.Prefetch(**nearest),
                    query=words.tolist(),
                    using=TOKENS,
                    limit=count,
                    with_payload=False,
                )
            )
        # One request of two queries: a query that goes on to MaxSim does not return the scores
        # that it began with. That the first stage runs twice costs less than another round trip.
        with self._calling():
            answers = self._client.query_batch_points(collection, requests)
        aligned = (
            {point.id: point.score for point in answers[-1].points} if words is not None else {}
        )
        return [
            ScoredPoint(dict(point.payload or {}), point.score, aligned.get(point.id))
            for point in answers[0].points
        ]

    def retrieve(
        self,
        collection: str,
        keys: Sequence[str],
        *,
        fields: Sequence[str],
        with_embeddings: bool = False,
    ) -> list[Point]:
        """Return the points with some keys; those that are not there are left out."""
        if not keys:
            return []
        with self._calling():
            records = self._client.retrieve(
                collection,
                list(keys),
                with_payload=list(fields),
                with_vectors=[MATCH] if with_embeddings else False,
            )
        return [
            Point(
                str(record.id),
                dict(record.payload or {}),
                _embedding(record.vector) if with_embeddings else None,
            )
            for record in records
        ]

    def check_health(self) -> None:
        """Return where the engine answers."""
        with self._calling():
            self._client.get_collections()

    def close(self) -> None:
        """Let go of what it holds."""
        self._client.close()

    @contextmanager
    def _calling(self) -> Generator[None]:
        with self._turn:
            try:
                yield
            except (ValueError, RuntimeError) as error:
                raise EngineError("qdrant", str(error)) from error


def _vectors(shape: CollectionShape) -> dict[str, models.VectorParams]:
    vectors = {MATCH: models.VectorParams(size=shape.embedding_dim, distance=models.Distance.DOT)}
    if shape.token_vectors != "none":
        vectors[TOKENS] = models.VectorParams(
            size=shape.token_dim,
            distance=models.Distance.DOT,
            datatype=models.Datatype(shape.token_vectors),
            multivector_config=models.MultiVectorConfig(
                comparator=models.MultiVectorComparator.MAX_SIM
            ),
            # Tokens are scored, never searched.
            hnsw_config=models.HnswConfigDiff(m=0),
            on_disk=True,
        )
    return vectors


def _sent(point: Point) -> models.PointStruct:
    vectors: dict[str, Any] = {}
    if point.embedding is not None:
        vectors[MATCH] = point.embedding.tolist()
    if point.tokens is not None:
        vectors[TOKENS] = point.tokens.tolist()
    return models.PointStruct(id=point.key, vector=vectors, payload=point.payload)


def _embedding(vectors: object) -> NDArray[np.float32]:
    return np.asarray(cast(dict[str, Any], vectors)[MATCH], np.float32)
