"""Interface between an index and the vector database that stores it.

An engine implements `EngineClient`. It keeps each generation of an index in three collections:
NAME_000001_images, NAME_000001_texts and NAME_000001_record. NAME itself is an alias of the record
of the live generation, so that images and texts change at the same moment.
"""

from __future__ import annotations

import re
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Generic, Literal, NamedTuple, Protocol, TypeVar

import numpy as np
from numpy.typing import NDArray

from aladin_index.items.filters import Filter
from aladin_index.items.tables import StoredItem
from aladin_index.tokens.codec import PackedTokens, TokenCodec
from aladin_network.errors import ConfigError
from aladin_network.types import TARGETS, Target

# The record first: without it a generation does not count as complete, should the removal be
# interrupted.
PARTS: tuple[Part, ...] = ("record", *TARGETS)


@dataclass(frozen=True, kw_only=True)
class EngineOptions:
    """How this machine connects to a vector database, for any index.

    Attributes:
        url: Address that replaces the one in ``engine.json``. If None, that address is used, but
            trusted less: no token is sent to it.
        token: API key or ``user:password`` for the engine, or None. Never shown.
        timeout_s: Time limit of one call, retries included.
        retries: Number of retries of a failed call that is safe to repeat.
    """

    url: str | None = None
    token: str | None = field(default=None, repr=False)
    timeout_s: float = 10.0
    retries: int = 3

    def __post_init__(self) -> None:
        """Check the values.

        Raises:
            ConfigError: If `timeout_s` is not positive or `retries` is negative.
        """
        if self.timeout_s <= 0:
            raise ConfigError(f"engine timeout_s: expected more than 0, got {self.timeout_s}")
        if self.retries < 0:
            raise ConfigError(f"engine retries: expected at least 0, got {self.retries}")


class EngineItem(NamedTuple):
    """An item as a vector database stores it; its id is the key.

    Attributes:
        item: Id, text and metadata. The row orders items of equal score: items of the pushed
            generation keep their rows from the index of files, items added later have larger ones.
        embedding: (d_match,) float32, L2-normalised, or None if it was not requested.
        tokens: Tokens in the collection's stored form, or None if they were not requested.
    """

    item: StoredItem
    embedding: NDArray[np.float32] | None
    tokens: PackedTokens | None


class FoundItem(NamedTuple):
    """An item found by a search, and the cosine of its embedding with the query."""

    entry: EngineItem
    match: float


@dataclass(frozen=True, kw_only=True)
class CollectionSchema:
    """What a vector database has to know before it can create a collection.

    Attributes:
        embedding_dim: Size of an embedding.
        codec: Codec of the tokens; items of a collection without tokens have 0 tokens.
        max_tokens: Largest number of tokens of an item; items added later may exceed it.
        count: Number of items about to be inserted.
    """

    embedding_dim: int
    codec: TokenCodec
    max_tokens: int
    count: int


class EngineFirstStage(NamedTuple):
    """How a vector database finds the nearest items of a collection.

    Attributes:
        kind: Index kind in the engine's own terms, such as "hnsw"; "flat" is exhaustive.
        widths: Possible search widths, ascending: candidates of a graph, or lists to scan. A
            single value if it was set by hand, empty if the kind has no such parameter.
    """

    kind: str
    widths: tuple[int, ...]


@dataclass(frozen=True, kw_only=True, eq=False)
class EngineQuery:
    """One nearest-neighbour search.

    Attributes:
        generation: Generation to search.
        target: Images or texts.
        embedding: (d_match,) float32 query, L2-normalised.
        count: Number of items wanted, at most `EngineClient.max_results`.
        filter: Filter that the items have to pass, or None.
        width: Search width out of `EngineFirstStage.widths`, or None for the widest. Searches with
            a filter or a large `count` may look further.
        with_tokens: Return the items' tokens.
    """

    generation: int
    target: Target
    embedding: NDArray[np.float32]
    count: int
    filter: Filter | None = None
    width: int | None = None
    with_tokens: bool = False


class EngineClient(Protocol):
    """Client of a vector database for one index; thread-safe.

    The index has numbered generations, one of which is live. A generation has a record (small
    named byte strings: manifest, codebooks) and one collection each for images and texts. Calls
    that are safe to repeat are retried within their time limit.

    Every method raises EngineUnavailableError if the engine does not respond in time, and
    EngineError if it refuses the call.
    """

    @property
    def kind(self) -> str:
        """Name of the vector database."""
        ...

    @property
    def max_results(self) -> int:
        """Largest `EngineQuery.count`."""
        ...

    def generations(self) -> list[int]:
        """List the generations in the database, complete or not, in ascending order."""
        ...

    def live_generation(self) -> int | None:
        """Return the live generation, or None if nothing was published yet."""
        ...

    def make_live(self, generation: int) -> None:
        """Make a generation the live one, atomically."""
        ...

    def drop_generation(self, generation: int) -> None:
        """Remove a generation that is not live; a missing one is not an error."""
        ...

    def write_record(self, generation: int, record: Mapping[str, bytes]) -> None:
        """Store a generation's record, replacing the previous one."""
        ...

    def read_record(self, generation: int) -> dict[str, bytes] | None:
        """Return a generation's record, or None if it has none."""
        ...

    def create_collection(self, generation: int, target: Target, schema: CollectionSchema) -> None:
        """Create an empty collection, unless it exists."""
        ...

    def open_collection(self, generation: int, target: Target) -> None:
        """Index a collection and make it searchable; returns when both are done."""
        ...

    def upsert(self, generation: int, target: Target, entries: Sequence[EngineItem]) -> None:
        """Insert items, replacing those with the same ids; durable on return.

        The items need embeddings and tokens. They are sent in batches of a size that the engine
        accepts; if a batch fails, the batches before it stay.
        """
        ...

    def delete(self, generation: int, target: Target, ids: Sequence[str]) -> None:
        """Remove items; unknown ids are not an error."""
        ...

    def count(self, generation: int, target: Target) -> int:
        """Return the number of items, all acknowledged changes included."""
        ...

    def first_stage(self, generation: int, target: Target) -> EngineFirstStage:
        """Return how a collection is searched."""
        ...

    def search(self, query: EngineQuery) -> list[FoundItem]:
        """Find the nearest items of a query, best first.

        Raises:
            InputError: If the engine cannot apply the filter.
        """
        ...

    def fetch(
        self,
        generation: int,
        target: Target,
        ids: Sequence[str],
        *,
        with_embeddings: bool = False,
        with_tokens: bool = False,
    ) -> list[EngineItem]:
        """Return items by id, in any order; unknown ids are omitted."""
        ...

    def check_health(self) -> None:
        """Check that the vector database responds."""
        ...

    def close(self) -> None:
        """Close the connections."""
        ...


Part = Target | Literal["record"]


@dataclass(frozen=True)
class CollectionNames:
    """Names of the collections of one index.

    Attributes:
        name: Name of the index, see `aladin_index.format.layout`.
    """

    name: str

    def of(self, generation: int, part: Part) -> str:
        """Return the name of the collection of one part of a generation."""
        return f"{self.name}_{generation:06d}_{part}"

    def generation_of(self, collection: str) -> int | None:
        """Return the generation of a collection, or None if it belongs to another index."""
        found = re.fullmatch(
            rf"{re.escape(self.name)}_(\d{{6,}})_(?:{'|'.join(PARTS)})", collection
        )
        return None if found is None else int(found[1])

    def generations_of(self, collections: Iterable[str]) -> list[int]:
        """List the generations that have any of these collections, in ascending order."""
        numbers = {self.generation_of(collection) for collection in collections}
        return sorted(number for number in numbers if number is not None)


Form = TypeVar("Form")


class FormCache(Generic[Form]):
    """Forms of collections by collection name, each read once; thread-safe.

    The form of a collection never changes, so it is kept until the collection is dropped.
    """

    def __init__(self) -> None:
        """Start empty."""
        self._lock = threading.Lock()
        self._forms: dict[str, Form] = {}

    def get(self, collection: str, read: Callable[[], Form]) -> Form:
        """Return the form of a collection.

        Args:
            collection: Name of the collection.
            read: Function that asks the engine for the form.
        """
        with self._lock:
            form = self._forms.get(collection)
        if form is None:
            form = read()
            with self._lock:
                self._forms[collection] = form
        return form

    def forget(self, collection: str) -> None:
        """Forget the form of a dropped collection; an unknown one is not an error."""
        with self._lock:
            self._forms.pop(collection, None)


Entry = TypeVar("Entry")


def messages_of(
    entries: Iterable[Entry],
    size_bytes: Callable[[Entry], int],
    most_bytes: int,
    most: int | None = None,
) -> Iterator[list[Entry]]:
    """Yield entries in messages that a server accepts, in the given order.

    Args:
        entries: Entries to be sent.
        size_bytes: Function that returns the size of an entry in a message.
        most_bytes: Largest size of a message; an entry that exceeds it is a message of its own.
        most: Largest number of entries in a message, or None for any number.
    """
    message: list[Entry] = []
    total_bytes = 0
    for entry in entries:
        entry_bytes = size_bytes(entry)
        if message and (total_bytes + entry_bytes > most_bytes or len(message) == most):
            yield message
            message, total_bytes = [], 0
        message.append(entry)
        total_bytes += entry_bytes
    if message:
        yield message
