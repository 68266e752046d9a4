"""The interface of Qdrant's stores (server, local mode, Qdrant Edge), and their settings.

A collection holds points: an id, a payload, and up to two named vectors. `match` is the embedding;
`tokens` is a multivector with the item's tokens, scored by MaxSim.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, Literal, NamedTuple, Protocol, TypeVar

import numpy as np
from numpy.typing import NDArray
from pydantic import ConfigDict

from aladin_index.engines.client import EngineFirstStage, EngineQuery
from aladin_index.format.layout import EngineLocation
from aladin_network.config import STRICT, parse_config
from aladin_network.errors import ConfigError, EngineError

MATCH, TOKENS = "match", "tokens"
FieldKind = Literal["keyword", "float"]
# Scores in float32 equal those of our kernel; float16 halves the size of the tokens and rounds
# scores; with "none" Qdrant computes no alignment scores, and our kernel re-ranks all candidates.
TokenVectors = Literal["float32", "float16", "none"]

# Numbers of candidates of a graph search to try until the recall is sufficient.
_WIDTHS = (128, 256, 512, 1024, 2048, 4096)


@dataclass(frozen=True, kw_only=True)
class CollectionShape:
    """The vectors of a collection.

    Attributes:
        embedding_dim: Size of an embedding.
        token_dim: Size of a token.
        token_vectors: How tokens are stored for MaxSim.
    """

    embedding_dim: int
    token_dim: int
    token_vectors: TokenVectors


class Point(NamedTuple):
    """An item as Qdrant stores it.

    Attributes:
        key: UUID of the point.
        payload: Data in the form of JSON.
        embedding: (d_match,) float32; None where it was not asked for.
        tokens: Array (tokens, d_align) of float32 for MaxSim, or None if Qdrant does not score the
            item's tokens.
    """

    key: str
    payload: dict[str, Any]
    embedding: NDArray[np.float32] | None = None
    tokens: NDArray[np.float32] | None = None


class ScoredPoint(NamedTuple):
    """A point that a search found.

    Attributes:
        payload: Payload with the requested fields.
        match: Dot product of the embeddings.
        align: MaxSim score with the words, or None if there were no words or the point has no
            tokens.
    """

    payload: dict[str, Any]
    match: float
    align: float | None


class PointStore(Protocol):
    """Collections of points; thread-safe.

    Raises EngineUnavailableError where the engine does not answer in time, EngineError where it
    refuses.
    """

    def collections(self) -> list[str]:
        """List the collections."""
        ...

    def alias(self, name: str) -> str | None:
        """Return the collection of an alias, or None if there is no such alias."""
        ...

    def set_alias(self, name: str, collection: str) -> None:
        """Point an alias to a collection, atomically."""
        ...

    def create(self, collection: str, shape: CollectionShape | None) -> None:
        """Create an empty collection, unless it exists; without a shape it has no vectors."""
        ...

    def drop(self, collection: str) -> None:
        """Remove a collection; a missing one is not an error."""
        ...

    def optimise(self, collection: str) -> None:
        """Index a collection; returns when that is done."""
        ...

    def index_field(self, collection: str, path: str, kind: FieldKind) -> None:
        """Index a field of the payload for filters, unless it is indexed."""
        ...

    def upsert(self, collection: str, points: Sequence[Point]) -> None:
        """Insert points, replacing those with the same keys; durable on return."""
        ...

    def delete(self, collection: str, keys: Sequence[str]) -> None:
        """Remove points; unknown keys are not an error."""
        ...

    def count(self, collection: str) -> int:
        """Return the exact number of points."""
        ...

    @property
    def first_stage(self) -> EngineFirstStage:
        """Index kind and possible search widths of the collections."""
        ...

    def search(
        self, collection: str, query: EngineQuery, fields: Sequence[str]
    ) -> list[ScoredPoint]:
        """Find the points with the nearest embeddings, best first.

        Args:
            collection: Collection to search.
            query: Embedding, number of points, filter and width; its words, if any, score the
                points found by MaxSim.
            fields: Payload fields to return.
        """
        ...

    def retrieve(
        self,
        collection: str,
        keys: Sequence[str],
        *,
        fields: Sequence[str],
        with_embeddings: bool = False,
    ) -> list[Point]:
        """Return points by key; unknown keys are omitted."""
        ...

    def scroll(self, collection: str, fields: Sequence[str]) -> Iterator[list[Point]]:
        """Yield every point once, in parts and in any order."""
        ...

    def check_health(self) -> None:
        """Check that the store responds."""
        ...

    def close(self) -> None:
        """Release all resources."""
        ...


class OpenFolders:
    """The open stores of folders, each with the number of its users."""

    def __init__(self) -> None:
        """Start without stores."""
        self._lock = threading.Lock()
        self._open: dict[Path, _OpenFolder] = {}

    def open(self, engine: str, path: Path, make: Callable[[Path], PointStore]) -> PointStore:
        """Return the store of a folder; it stays open until every user has closed it.

        Args:
            engine: Vector database that stores the folder.
            path: Path of the folder; it need not exist.
            make: Function that opens the store.

        Raises:
            EngineError: If another kind of vector database has it open.
        """
        path = path.resolve()
        with self._lock:
            folder = self._open.get(path)
            if folder is None:
                folder = self._open[path] = _OpenFolder(engine, make(path))
            elif folder.engine != engine:
                raise EngineError(engine, f"{path}: is open as a folder of {folder.engine}")
            folder.users += 1
            return folder.store

    def close(self, path: Path) -> None:
        """Close a store returned by `open`; to be called once per `open`."""
        path = path.resolve()
        with self._lock:
            folder = self._open[path]
            folder.users -= 1
            if folder.users == 0:
                del self._open[path]
                folder.store.close()


@dataclass
class _OpenFolder:
    engine: str
    store: PointStore
    users: int = 0


# Stores of this process: the folders are locked against other processes.
OPEN_FOLDERS = OpenFolders()


T = TypeVar("T")


class Calls(Protocol):
    """Policy of a client's calls; raises EngineError and EngineUnavailableError."""

    def run(self, call: Callable[[], T]) -> T:
        """Make a call, possibly with retries."""
        ...


# Names of the levels in qdrant-client's `ReadConsistencyType`.
Consistency = Literal["majority", "quorum", "all"]


@dataclass(frozen=True, kw_only=True)
class QdrantSettings:
    """How collections are created and searched; differs from Qdrant's defaults for recall.

    In Qdrant Edge, of 20,000 vectors of 256 numbers around 200 centres, each 1.5 times as far from
    its centre as that is from 0, searches for 100 that looked at 128, 200 and 512 candidates found
    98.7, 99.4 and 99.98 % of them; with Qdrant's own 16 links, made of 100 candidates, 97.3, 98.3
    and 99.6 %.

    Attributes:
        shards: Number of shards of a collection, or None for one per node of the server.
        replicas: Number of replicas of a shard.
        index: "hnsw", or "flat" compares with every item.
        m: Number of links of a graph node.
        ef_construct: Number of candidates that are considered for the links of a node.
        ef: Minimum number of candidates of a graph search, which uses at least twice the number of
            requested results; or None for the number chosen by the push.
        tokens: How tokens are stored for MaxSim, see `TokenVectors`.
        consistency: How many replicas have to agree on a read, or None for "quorum" if there are
            replicas, so that a write acknowledged by a majority is found.
    """

    __pydantic_config__: ClassVar[ConfigDict] = STRICT

    shards: int | None = None
    replicas: int = 1
    index: Literal["hnsw", "flat"] = "hnsw"
    m: int = 32
    ef_construct: int = 200
    ef: int | None = None
    tokens: TokenVectors = "float32"
    consistency: Consistency | None = None

    def __post_init__(self) -> None:
        """Check the values.

        Raises:
            ConfigError: If a number is below 1 or the graph would have no links.
        """
        for name, least in (("m", 2), ("ef_construct", 1), ("ef", 1)):
            value: int | None = getattr(self, name)
            if value is not None and value < least:
                raise ConfigError(f"{name}: expected at least {least}, got {value}")

    @property
    def most_replicas(self) -> int:
        """Return the number of replicas that form a majority."""
        return self.replicas // 2 + 1

    @property
    def first_stage(self) -> EngineFirstStage:
        """Return how collections with these settings are searched."""
        widths = _WIDTHS if self.ef is None else (self.ef,)
        return EngineFirstStage(self.index, widths if self.index == "hnsw" else ())

    def candidates(self, count: int, width: int | None) -> int:
        """Return the number of candidates of a graph search.

        Args:
            count: Number of items wanted.
            width: Width chosen by a push, or None for the widest.
        """
        return max(self.ef or width or _WIDTHS[-1], 2 * count)

    @classmethod
    def of(cls, location: EngineLocation) -> QdrantSettings:
        """Read the settings from a location.

        Raises:
            ConfigError: If Qdrant does not have the setting, or a value is impossible.
        """
        given = {
            "shards": location.shards,
            "replicas": location.replicas,
            "index": location.index,
            "consistency": location.consistency,
        }
        settings = {
            **{name: value for name, value in given.items() if value is not None},
            **location.index_params,
            **location.search_params,
        }
        return parse_config(cls, settings, f"options of {location.engine}")
