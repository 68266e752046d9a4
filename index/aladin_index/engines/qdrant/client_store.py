"""Points stored by `qdrant-client`: on a server, or in this process in its local mode.

Both accept the same requests. The local mode is exhaustive, has no payload indexes and keeps
everything in memory: it is for tests and for some thousands of items.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any, cast

import numpy as np
from qdrant_client import QdrantClient, models
from qdrant_client.http.models import QueryResponse

from aladin_index.engines.client import EngineFirstStage, EngineQuery, messages_of
from aladin_index.engines.qdrant.points import conditions
from aladin_index.engines.qdrant.store import (
    MATCH,
    TOKENS,
    Calls,
    CollectionShape,
    FieldKind,
    Point,
    QdrantSettings,
    ScoredPoint,
)
from aladin_network.errors import EngineError, EngineUnavailableError

# 40 bytes each; as many embeddings are 60 MB.
_KEYS_A_MESSAGE = 10_000
_LOOK_AGAIN_S = 0.3
# A server is green until it notices that there is something to index.
_GREEN_LOOKS = 3
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


class ClientStore:
    """A `PointStore` based on `qdrant_client.QdrantClient`."""

    def __init__(
        self,
        engine: str,
        client: QdrantClient,
        calls: Calls,
        settings: QdrantSettings,
        *,
        local: bool,
    ) -> None:
        """Use a client, which is closed together with this object.

        Args:
            engine: Name of the vector database in messages.
            client: Client of a server, or in local mode.
            calls: Object that makes all calls of the client.
            settings: Settings of collections; the local mode ignores most of them.
            local: Whether the client is in local mode.
        """
        self._engine = engine
        self._client = client
        self._calls = calls
        self._settings = settings
        self._local = local
        self._replicated = settings.replicas > 1 and not local

    def collections(self) -> list[str]:
        """List the collections."""
        found = self._calls.run(self._client.get_collections)
        return [each.name for each in found.collections]

    def alias(self, name: str) -> str | None:
        """Return the collection of an alias, or None if there is no such alias."""
        aliases = self._calls.run(self._client.get_aliases).aliases
        return next((each.collection_name for each in aliases if each.alias_name == name), None)

    def set_alias(self, name: str, collection: str) -> None:
        """Point an alias to a collection, atomically."""
        steps: list[models.AliasOperations] = []
        if self.alias(name) is not None:
            deleted = models.DeleteAlias(alias_name=name)
            steps.append(models.DeleteAliasOperation(delete_alias=deleted))
        created = models.CreateAlias(collection_name=collection, alias_name=name)
        steps.append(models.CreateAliasOperation(create_alias=created))
        self._calls.run(lambda: self._client.update_collection_aliases(steps))

    def create(self, collection: str, shape: CollectionShape | None) -> None:
        """Create an empty collection, unless it exists; without a shape it has no vectors."""
        settings = self._settings

        def create() -> None:
            # Checked each time: a try may have created it although its response was lost.
            if self._client.collection_exists(collection):
                return
            self._client.create_collection(
                collection,
                vectors_config={} if shape is None else vectors_of(shape, settings),
                shard_number=1 if shape is None else settings.shards,
                replication_factor=settings.replicas,
                write_consistency_factor=settings.most_replicas,
                optimizers_config=indexing(now=False),
            )

        self._calls.run(create)

    def drop(self, collection: str) -> None:
        """Remove a collection; a missing one is not an error."""

        def drop() -> None:
            if self._client.collection_exists(collection):
                self._client.delete_collection(collection)

        self._calls.run(drop)

    def index_field(self, collection: str, path: str, kind: FieldKind) -> None:
        """Index a field of the payload, unless it is indexed."""
        if not self._local:
            schema = models.PayloadSchemaType(kind)
            self._calls.run(lambda: self._client.create_payload_index(collection, path, schema))

    def optimise(self, collection: str) -> None:
        """Index a collection; returns when that is done."""
        if self._local:
            return
        self._calls.run(
            lambda: self._client.update_collection(collection, optimizers_config=indexing(now=True))
        )
        green = 0
        while green < _GREEN_LOOKS:
            time.sleep(_LOOK_AGAIN_S)
            state = self._calls.run(lambda: self._client.get_collection(collection))
            if state.status == models.CollectionStatus.RED:
                raise EngineError(self._engine, f"{collection}: {state.optimizer_status}")
            green = green + 1 if state.status == models.CollectionStatus.GREEN else 0

    def upsert(self, collection: str, points: Sequence[Point]) -> None:
        """Insert points, replacing those with the same keys; durable on return."""
        for message in messages_of(points, _size_bytes, _MESSAGE_BYTES):
            structs = [_struct(point) for point in message]
            self._change(collection, partial(self._client.upsert, points=structs))

    def delete(self, collection: str, keys: Sequence[str]) -> None:
        """Remove points; unknown keys are not an error."""
        for part in _parts(keys):
            chosen = models.PointIdsList(points=list[models.ExtendedPointId](part))
            self._change(collection, partial(self._client.delete, points_selector=chosen))

    def count(self, collection: str) -> int:
        """Return the exact number of points."""
        return self._calls.run(lambda: self._client.count(collection, exact=True)).count

    @property
    def first_stage(self) -> EngineFirstStage:
        """Index kind and possible search widths of the collections."""
        return EngineFirstStage("flat", ()) if self._local else self._settings.first_stage

    def search(
        self, collection: str, query: EngineQuery, fields: Sequence[str]
    ) -> list[ScoredPoint]:
        """Find the points with the nearest embeddings, best first, see `PointStore`."""
        requests = search_requests(query, fields, self._parameters(query.count, query.width))
        answers = self._calls.run(
            lambda: self._client.query_batch_points(
                collection, requests, consistency=self._consistency
            )
        )
        return scored_points(answers)

    def retrieve(
        self,
        collection: str,
        keys: Sequence[str],
        *,
        fields: Sequence[str],
        with_embeddings: bool = False,
    ) -> list[Point]:
        """Return points by key; unknown keys are omitted."""
        points: list[Point] = []
        for part in _parts(keys):
            read = partial(
                self._client.retrieve,
                collection,
                part,
                with_payload=list(fields),
                with_vectors=[MATCH] if with_embeddings else False,
                consistency=self._consistency,
            )
            points += [point_of_record(record) for record in self._calls.run(read)]
        return points

    def scroll(self, collection: str, fields: Sequence[str]) -> Iterator[list[Point]]:
        """Yield every point once, in parts and in any order."""
        read = partial(self._client.scroll, collection, limit=_KEYS_A_MESSAGE)
        read = partial(read, with_payload=list(fields), consistency=self._consistency)
        offset: Any = None
        while True:
            records, offset = self._calls.run(partial(read, offset=offset))
            yield [point_of_record(record) for record in records]
            if offset is None:
                return

    def check_health(self) -> None:
        """Check that Qdrant responds."""
        self._calls.run(self._client.get_collections)

    def close(self) -> None:
        """Release all resources."""
        self._client.close()

    @property
    def _consistency(self) -> models.ReadConsistencyType | None:
        """Return how many replicas have to agree on a response."""
        wanted = self._settings.consistency
        if wanted is None:
            # A majority of the replicas has acknowledged each write, so a majority has it.
            return models.ReadConsistencyType.QUORUM if self._replicated else None
        return models.ReadConsistencyType(wanted)

    def _parameters(self, count: int, width: int | None) -> models.SearchParams | None:
        if self._local:
            return None
        return models.SearchParams(hnsw_ef=self._settings.candidates(count, width))

    def _change(self, collection: str, change: Callable[..., models.UpdateResult]) -> None:
        """Change points and wait until the change is visible to searches."""
        # With replicas, changes of an item by several writers must reach all replicas in one order.
        ordering = models.WriteOrdering.MEDIUM if self._replicated else None
        done = self._calls.run(lambda: change(collection, wait=True, ordering=ordering))
        if done.status != models.UpdateStatus.COMPLETED:
            reason = f"{collection}: a change is {done.status}, not completed in time"
            raise EngineUnavailableError(self._engine, reason)


def _parts(keys: Sequence[str]) -> Iterator[list[str]]:
    """Yield keys in parts that fit in one message."""
    for start in range(0, len(keys), _KEYS_A_MESSAGE):
        yield list(keys[start : start + _KEYS_A_MESSAGE])


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
