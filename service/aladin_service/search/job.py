"""Queries, a search as it waits for a worker, and its answer as it comes back."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, NamedTuple, get_args

from aladin_index.search.options import SearchOptions
from aladin_index.search.results import TookMs
from aladin_network.types import Target


@dataclass(frozen=True)
class TextQuery:
    """Words, as the user typed them."""

    text: str


@dataclass(frozen=True)
class PhotoQuery:
    """A picture file that is not part of the index.

    Attributes:
        data: The undecoded, untrusted bytes.
        source: Name of the picture in errors.
    """

    data: bytes
    source: str = "image"


@dataclass(frozen=True)
class RegionsQuery:
    """The regions of a photo that is not part of the index, as a detector found them.

    Attributes:
        data: An npz file, undecoded and untrusted.
        photo: The undecoded picture file itself, for a drawing of the evidence, or None if not
            given.
        source: Name of the regions in errors.
    """

    data: bytes
    photo: bytes | None = None
    source: str = "regions"


@dataclass(frozen=True)
class ItemQuery:
    """An item of the index, an image or a text.

    Attributes:
        item_id: Id of the item.
        include_itself: Whether the item may be among its own hits, where items of its kind are
            searched.
    """

    item_id: str
    include_itself: bool = False


@dataclass(frozen=True)
class EmbeddingQuery:
    """A given embedding: it has no words or regions to align, so the first stage alone ranks.

    Attributes:
        values: Embedding of the same dimension as the index's embeddings; only its direction
            matters.
    """

    values: tuple[float, ...]


Query = TextQuery | PhotoQuery | RegionsQuery | ItemQuery | EmbeddingQuery

# Queues: texts and photos are encoded separately, other queries are not encoded at all.
QueueName = Literal["text", "photo", "encoded"]
QUEUE_NAMES: tuple[QueueName, ...] = get_args(QueueName)


def queue_of(query: Query) -> QueueName:
    """Return the queue of a query: queries encoded by the same tower share one."""
    match query:
        case TextQuery():
            return "text"
        case PhotoQuery() | RegionsQuery():
            return "photo"
        case _:
            return "encoded"


@dataclass(frozen=True, kw_only=True)
class SearchJob:
    """A query and how to answer it.

    Attributes:
        query: Query to search for.
        target: Collection to search.
        options: Options of the search.
        received_s: Arrival time of the request, by `time.monotonic`, which all processes share.
    """

    query: Query
    target: Target
    options: SearchOptions
    received_s: float


class Answered(NamedTuple):
    """An answer ready to be sent, and its metrics.

    Attributes:
        body: A `SearchAnswer` as JSON; written by the worker, so that the event loop does not have
            to.
        generation: Generation of the index that answered.
        degraded: Requested features that were skipped.
        took_ms: Time of each part, as in the body.
        no_match: Whether the answer reports that nothing matches, or None if that was not
            determined.
        cached: Whether the query's encoding was cached from an earlier query.
        batch: Number of queries that were encoded together with this one, itself included.
        queue_ms: Time from the request until a slot took it; known where the query waited.
    """

    body: bytes
    generation: int
    degraded: tuple[str, ...]
    took_ms: TookMs
    no_match: bool | None = None
    cached: bool = False
    batch: int = 1
    queue_ms: float = 0.0
