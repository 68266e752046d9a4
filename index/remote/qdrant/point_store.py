"""What is asked of Qdrant: the seam between a server, its client's local mode and Qdrant Edge.

A collection holds points: an id, a payload, and up to two named vectors. `match` is the embedding;
`tokens` are an item's tokens, many vectors that are scored by MaxSim.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from index.items.filter_tree import Filter
from index.remote.client import SideSearch

MATCH, TOKENS = "match", "tokens"
FieldKind = Literal["keyword", "float"]
# Scores of float32 equal those of our kernel; float16 halves the room that tokens take and
# rounds scores; with "none" the engine scores no words, and our kernel re-ranks all.
TokenVectors = Literal["float32", "float16", "none"]
TOKEN_VECTORS: tuple[TokenVectors, ...] = ("float32", "float16", "none")


@dataclass(frozen=True, kw_only=True)
class CollectionShape:
    """The vectors of a collection.

    Attributes:
        embedding_dim: size of an embedding.
        token_dim: size of a token.
        token_vectors: how tokens are kept for MaxSim.
    """

    embedding_dim: int
    token_dim: int
    token_vectors: TokenVectors


class Point(NamedTuple):
    """An item as Qdrant keeps it.

    Attributes:
        key: a UUID.
        payload: what JSON can say.
        embedding: (d_match,) float32; None where it was not asked for.
        tokens: (tokens, d_align) float32 for MaxSim; None: it is not scored by words.
    """

    key: str
    payload: dict[str, Any]
    embedding: NDArray[np.float32] | None = None
    tokens: NDArray[np.float32] | None = None


class ScoredPoint(NamedTuple):
    """A point that a search found.

    Attributes:
        payload: of the fields that were asked for.
        match: dot product of the embeddings.
        align: MaxSim with the words; None: there were none, or the point has no tokens.
    """

    payload: dict[str, Any]
    match: float
    align: float | None


class PointStore(Protocol):
    """Collections of points; safe to use from any number of threads.

    Raises EngineUnavailableError where the engine does not answer in time, EngineError where it
    refuses.
    """

    def collections(self) -> list[str]:
        """List the collections."""
        ...

    def alias(self, name: str) -> str | None:
        """Return the collection that a name stands for; None: it stands for none."""
        ...

    def set_alias(self, name: str, collection: str) -> None:
        """Let a name stand for a collection from now on, in one step."""
        ...

    def create(self, collection: str, shape: CollectionShape | None) -> None:
        """Make an empty collection, unless it is there; without a shape it has no vectors."""
        ...

    def drop(self, collection: str) -> None:
        """Remove a collection; one that is not there is no error."""
        ...

    def optimise(self, collection: str) -> None:
        """Index what is in a collection; returns when that is done."""
        ...

    def index_field(self, collection: str, path: str, kind: FieldKind) -> None:
        """Have a field of the payload indexed for filters, unless it is."""
        ...

    def upsert(self, collection: str, points: Sequence[Point]) -> None:
        """Put points in, in the place of those with the same keys; kept when it returns."""
        ...

    def delete(self, collection: str, keys: Sequence[str]) -> None:
        """Remove points; keys that are not there are no error."""
        ...

    def count(self, collection: str) -> int:
        """Return the exact number of points."""
        ...

    @property
    def first_stage(self) -> SideSearch:
        """How collections are searched."""
        ...

    def search(
        self,
        collection: str,
        query: NDArray[np.float32],
        count: int,
        filter: Filter | None,
        *,
        width: int | None,
        fields: Sequence[str],
        words: NDArray[np.float32] | None = None,
    ) -> list[ScoredPoint]:
        """Find the points whose embeddings are nearest, best first.

        Args:
            collection: to search.
            query: (d_match,).
            count: points wanted.
            filter: to pass; None: none.
            width: candidates of the graph, at least; None: as many as any search has.
            fields: of the payload that are wanted.
            words: (words, d_align) to score what is found by MaxSim.
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
        """Return the points with some keys; those that are not there are left out."""
        ...

    def check_health(self) -> None:
        """Return where the engine answers."""
        ...

    def close(self) -> None:
        """Let go of what it holds."""
        ...
