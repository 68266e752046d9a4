"""Queries, a search as it waits for a worker, and its answer as it comes back; also documents."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar, Literal, NamedTuple, get_args

from aladin_index.search.options import AskedSearch
from aladin_index.search.results import Box, Role, TookMs
from aladin_network.types import Modality

if TYPE_CHECKING:
    from aladin_index.search.documents import DocumentVectors

# Queues: texts and photos are encoded separately, other queries are not encoded at all. Documents
# have their own, since a query does not wait for a batch of them.
QueueName = Literal["text", "photo", "encoded", "document_text", "document_photo"]
QUEUE_NAMES: tuple[QueueName, ...] = get_args(QueueName)


@dataclass(frozen=True)
class TextQuery:
    """Words, as the user typed them."""

    queue: ClassVar[QueueName] = "text"
    modality: ClassVar[Modality] = "text"
    box: ClassVar[None] = None
    picture: ClassVar[None] = None
    text: str


@dataclass(frozen=True)
class PhotoQuery:
    """A picture file that is not part of the index.

    Attributes:
        data: The undecoded, untrusted bytes.
        source: Name of the picture in errors.
        box: Part of the picture to search for, in fractions of its size; None for all of it.
    """

    queue: ClassVar[QueueName] = "photo"
    modality: ClassVar[Modality] = "image"
    data: bytes
    source: str = "image"
    box: Box | None = None

    @property
    def picture(self) -> bytes:
        """The picture file."""
        return self.data


@dataclass(frozen=True)
class RegionsQuery:
    """The regions of a photo that is not part of the index, as a detector found them.

    Attributes:
        data: An npz file, undecoded and untrusted.
        picture: The undecoded picture file itself, for a drawing of the evidence, or None if not
            given.
        source: Name of the regions in errors.
        box: Part of the photo to search for, in fractions of its size; None for all of it.
    """

    queue: ClassVar[QueueName] = "photo"
    modality: ClassVar[Modality] = "image"
    data: bytes
    picture: bytes | None = None
    source: str = "regions"
    box: Box | None = None


@dataclass(frozen=True)
class ItemQuery:
    """An item of the index, an image or a text.

    Attributes:
        item_id: Id of the item.
        box: Part of a photo to search for, in fractions of its size; None for the whole item.
    """

    queue: ClassVar[QueueName] = "encoded"
    item_id: str
    box: Box | None = None


PlainQuery = TextQuery | PhotoQuery | RegionsQuery | ItemQuery


@dataclass(frozen=True)
class QueryTerm:
    """A term of a query, before it is encoded as a `Term`.

    Attributes:
        query: The term as a query of its own.
        role: What the term says of the hits; None for a query that is this term alone.
        weight: Weight among the terms, more than 0; examples have no weight of their own.
    """

    query: PlainQuery
    role: Role | None = None
    weight: float = 1.0


@dataclass(frozen=True)
class TermsQuery:
    """A query of several terms: what hits have and do not have, and items that they are like.

    Attributes:
        terms: At least one of which is what hits have, or an item that they are like.
    """

    terms: tuple[QueryTerm, ...]

    @property
    def queue(self) -> QueueName:
        """Queue in which the query waits: that of the term that takes longest to encode."""
        queues = {term.query.queue for term in self.terms}
        return "photo" if "photo" in queues else "text" if "text" in queues else "encoded"


Query = PlainQuery | TermsQuery


class SearchJob(AskedSearch[Query]):
    """A search as it waits for a worker, its query not encoded yet."""

    @property
    def queue(self) -> QueueName:
        """Queue in which the query waits."""
        return self.query.queue


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


# A text or a photo that a request brings to be encoded or scored, not to search with.
Document = TextQuery | PhotoQuery

# How the vectors of a document come back: as arrays, or written for an answer in JSON, as numbers
# or as the base64 of little-endian float32.
VectorForm = Literal["arrays", "float", "base64"]


@dataclass(frozen=True, kw_only=True)
class EncodeJob:
    """A document to encode, in the precision of an index.

    Attributes:
        document: Document to encode.
        received_s: Arrival time of the request, by `time.monotonic`.
        truncate: Whether a text that is too long is cut instead of refused.
        max_tokens: Number of tokens that a text is cut to, or None for those of the network.
        form: Form of the vectors.
        multivector: Whether the tokens are written instead of the embedding.
    """

    document: Document
    received_s: float
    truncate: bool = False
    max_tokens: int | None = None
    form: VectorForm = "arrays"
    multivector: bool = False

    @property
    def queue(self) -> QueueName:
        """Queue in which the document waits."""
        return "document_text" if isinstance(self.document, TextQuery) else "document_photo"


class EncodedDocument(NamedTuple):
    """An encoded document.

    Attributes:
        model_id: SHA-256 of the weights that encoded it.
        num_tokens: Number of tokens that the network read: those of the tokenizer, special ones
            included, or the regions of a photo.
        truncated: Whether the text was cut.
        vectors: Embedding and tokens, or None if they are written.
        written: Written vectors as JSON, or empty if they are arrays.
        batch: Number of documents that were encoded together, including this one.
        queue_ms: Time from the request until a slot took it; known where it waited.
        cached: Always False; documents do not fill the cache of the queries.
    """

    model_id: str
    num_tokens: int = 0
    truncated: bool = False
    vectors: DocumentVectors | None = None
    written: bytes = b""
    batch: int = 1
    queue_ms: float = 0.0
    cached: bool = False


# What waits in the queues of queries, and what comes back.
QueuedWork = SearchJob | EncodeJob
WorkAnswer = Answered | EncodedDocument
