"""Client of Milvus, the vector database that stores an index on many machines.

Each generation of an index has three collections: NAME_000001_images, NAME_000001_texts and
NAME_000001_record. NAME itself is an alias of the record of the live generation, so that images and
texts change at the same moment.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from aladin_index.engines.collections import (
    EXACT,
    GRAPH,
    CollectionShape,
    check_search_params,
    create_collection,
    index_kind,
    kind_for,
    seal,
    search_params,
    widths_of,
)
from aladin_index.engines.connection import ENGINE, ONCE, Connection, Consistency
from aladin_index.engines.filter_fields import EXTENTS, TERMS, expression, quoted
from aladin_index.engines.record import GenerationRecord, is_whole, read_record, write_record
from aladin_index.engines.rows import (
    ITEM,
    KEY,
    MATCH,
    MAX_TERMS,
    MAX_TEXT_BYTES,
    CollectionForm,
    CollectionSchema,
    EngineItem,
    batches,
    entry_of,
    key_of,
    parts_of,
    row_of,
)
from aladin_index.format.layout import EngineLocation
from aladin_index.items.filters import Filter
from aladin_network.errors import ConfigError, EngineError, IndexNotReadyError
from aladin_network.types import TARGETS, Target

Part = Target | Literal["record"]
# The record first: without it a generation does not count as complete, should the removal be
# interrupted.
PARTS: tuple[Part, ...] = ("record", *TARGETS)

_NO_SUCH_ALIAS = 1600
_TERM_BYTES = 512  # `aladin_index.engines.filter_fields` makes terms of at most 280


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
        if self.timeout_s <= 0:
            raise ConfigError(f"engine timeout_s: expected more than 0, got {self.timeout_s}")
        if self.retries < 0:
            raise ConfigError(f"engine retries: expected at least 0, got {self.retries}")


class FoundItem(NamedTuple):
    """An item found by a search, and the cosine of its embedding with the query."""

    entry: EngineItem
    match: float


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


def collection_name(name: str, generation: int, part: Part) -> str:
    return f"{name}_{generation:06d}_{part}"


def generations_of(name: str, collections: Iterable[str]) -> list[int]:
    """List the generations of an index that have any of these collections, in ascending order."""
    own = re.compile(rf"{re.escape(name)}_(\d{{6,}})_(?:{'|'.join(PARTS)})")
    found = map(own.fullmatch, collections)
    return sorted({int(match[1]) for match in found if match is not None})


class EngineClient:
    """Client for one index; thread-safe.

    The index has numbered generations, one of which is live. A generation has a record (small
    named byte strings: manifest, codebooks) and one collection each for images and texts. Calls
    that are safe to repeat are retried within their time limit.

    Every method raises EngineUnavailableError if Milvus does not respond in time, and EngineError
    if it refuses the call.

    Attributes:
        max_results: Largest `EngineQuery.count`: Milvus's own limit.
    """

    max_results = 16_384

    def __init__(self, location: EngineLocation, options: EngineOptions) -> None:
        check_search_params(location.index or GRAPH, location.search_params)
        self._location = location
        self._consistency = Consistency(location.url, location.consistency)
        self._connection = Connection(
            location.url, options.token, options.timeout_s, options.retries
        )
        # The form of a collection never changes, so it is kept until the collection is dropped.
        self._forms: dict[str, CollectionForm] = {}

    def generations(self) -> list[int]:
        """List the generations in Milvus, complete or not, in ascending order."""
        names = self._connection.call(lambda client: client.list_collections(**ONCE))
        return generations_of(self._location.name, names)

    def live_generation(self) -> int | None:
        """Return the live generation, or None if nothing was published yet."""
        collection = self._live_collection()
        return next(iter(generations_of(self._location.name, [collection or ""])), None)

    def make_live(self, generation: int) -> None:
        name, collection = self._location.name, self._name(generation, "record")

        def point(client: Any) -> None:
            if self._live_collection() is None:
                client.create_alias(collection, name, **ONCE)
            else:
                client.alter_alias(collection, name, **ONCE)

        self._connection.call(point)

    def drop_generation(self, generation: int) -> None:
        """Remove a generation that is not live; a missing one is not an error."""
        if self.live_generation() == generation:
            name = self._location.name
            raise EngineError(ENGINE, f"generation {generation} of {name!r} is live")
        for part in PARTS:
            collection = self._name(generation, part)
            self._connection.call(
                lambda client, collection=collection: client.drop_collection(collection, **ONCE)
            )
            self._forms.pop(collection, None)

    def write_record(self, generation: int, record: Mapping[str, bytes]) -> None:
        """Store a generation's record, replacing the previous one."""
        write_record(self._connection, self._name(generation, "record"), record)

    def read_record(self, generation: int) -> dict[str, bytes] | None:
        return read_record(self._connection, self._name(generation, "record"))

    def create_collection(self, generation: int, target: Target, schema: CollectionSchema) -> None:
        """Create an empty collection, unless it exists."""
        asked = self._location.index
        of_index = self._location.index_params
        if asked is None and (of_index or self._location.search_params):
            asked = GRAPH
        name = kind_for(asked, schema.count)
        kind, form = index_kind(name), CollectionForm.of(schema, name)
        text = ("VARCHAR", {"max_length": MAX_TEXT_BYTES})
        terms = {"element_type": "VARCHAR", "max_capacity": MAX_TERMS, "max_length": _TERM_BYTES}
        shape = CollectionShape(
            fields={
                MATCH: ("FLOAT_VECTOR", {"dim": schema.embedding_dim}),
                ITEM: text,
                TERMS: ("ARRAY", terms),
                EXTENTS: ("JSON", {}),
                **dict.fromkeys(form.token_fields, text),
            },
            vector=MATCH,
            index=kind.name,
            index_params=kind.build_params(schema.count) | (of_index if name == asked else {}),
            description=form.description,
            shards=self._location.shards,
            replicas=self._location.replicas,
        )
        create_collection(self._connection, self._name(generation, target), shape)

    def open_collection(self, generation: int, target: Target) -> None:
        """Index a collection and make it searchable; returns when both are done."""
        collection = self._name(generation, target)
        exact = self._form(collection).index_kind == EXACT
        seal(self._connection, collection, MATCH, exact=exact)

    def upsert(self, generation: int, target: Target, entries: Sequence[EngineItem]) -> None:
        """Insert items, replacing those with the same ids; durable on return.

        The items need embeddings and tokens. They are sent in batches of a size that Milvus
        accepts; if a batch fails, the batches before it stay.
        """
        collection = self._name(generation, target)
        form = self._form(collection)
        # Milvus would keep both of two rows with the same key in one request.
        rows = {key_of(entry.item.id): row_of(entry, form) for entry in entries}
        for batch in batches(list(rows.values())):
            self._connection.call(
                lambda client, batch=batch: client.upsert(collection, batch, **ONCE)
            )
            self._note_write(collection)

    def delete(self, generation: int, target: Target, ids: Sequence[str]) -> None:
        """Remove items; unknown ids are not an error."""
        collection = self._name(generation, target)
        for part in parts_of([key_of(item_id) for item_id in ids]):
            self._connection.call(
                lambda client, part=part: client.delete(collection, filter=_one_of(part), **ONCE)
            )
            self._note_write(collection)

    def count(self, generation: int, target: Target) -> int:
        """Return the number of items, all acknowledged changes included."""
        collection = self._name(generation, target)
        rows = self._connection.call(
            lambda client: client.query(
                collection, output_fields=["count(*)"], consistency_level="Strong", **ONCE
            )
        )
        return int(rows[0]["count(*)"])

    def first_stage(self, generation: int, target: Target) -> EngineFirstStage:
        """Return how a collection is searched."""
        name = self._form(self._name(generation, target)).index_kind
        return EngineFirstStage(name, widths_of(index_kind(name), self._location.search_params))

    def search(self, query: EngineQuery) -> list[FoundItem]:
        """Find the nearest items of a query, best first.

        Tokens of more items than one message takes are omitted; `fetch` returns them.
        """
        collection = self._name(query.generation, query.target)
        form = self._form(collection)
        params = search_params(
            index_kind(form.index_kind),
            self._location.search_params,
            query.count,
            width=query.width,
            filtered=query.filter is not None,
        )
        passes = "" if query.filter is None else expression(query.filter)
        fields = [ITEM]
        if query.with_tokens and query.count <= form.rows_with_tokens:
            fields += form.token_fields
        hits = self._connection.call(
            lambda client: client.search(
                collection,
                [query.embedding.astype(np.float32).tolist()],
                filter=passes,
                limit=query.count,
                output_fields=fields,
                search_params=params,
                anns_field=MATCH,
                **self._consistency.of_read(collection),
                **ONCE,
            )[0]
        )
        return [FoundItem(entry_of(hit["entity"], form), float(hit["distance"])) for hit in hits]

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
        collection = self._name(generation, target)
        form = self._form(collection)
        fields = [ITEM, *([MATCH] if with_embeddings else ())]
        fields += form.token_fields if with_tokens else ()
        rows: list[dict[str, Any]] = []
        most = form.rows_with_tokens if with_tokens else len(ids)
        for part in parts_of([key_of(item_id) for item_id in ids], max(1, most)):
            rows += self._connection.call(
                lambda client, part=part: client.query(
                    collection,
                    filter=_one_of(part),
                    output_fields=fields,
                    **self._consistency.of_read(collection),
                    **ONCE,
                )
            )
        return [entry_of(row, form) for row in rows]

    def check_health(self) -> None:
        """Check that Milvus responds."""
        self._connection.call(lambda client: client.list_collections(**ONCE))

    def close(self) -> None:
        self._connection.close()

    def _live_collection(self) -> str | None:
        name, refused = self._location.name, self._connection.pymilvus.MilvusException

        def described(client: Any) -> str | None:
            try:
                collection: str = client.describe_alias(name, **ONCE)["collection_name"]
                return collection
            except refused as error:
                if error.code == _NO_SUCH_ALIAS:
                    return None
                raise

        return self._connection.call(described)

    def _note_write(self, collection: str) -> None:
        """Make reads of this process wait for all writes so far."""
        # A method of the client's handler, not of the client itself.
        timestamp = self._connection.call(
            lambda client: client._get_connection().alloc_timestamp(**ONCE)
        )
        self._consistency.note_write(collection, timestamp)

    def _name(self, generation: int, part: Part) -> str:
        return collection_name(self._location.name, generation, part)

    def _form(self, collection: str) -> CollectionForm:
        form = self._forms.get(collection)
        if form is None:
            described = self._connection.call(
                lambda client: client.describe_collection(collection, **ONCE)
            )
            form = self._forms[collection] = CollectionForm.read(described["description"])
        return form


def _one_of(keys: Sequence[str]) -> str:
    """Return the expression for rows with one of some keys, which are hexadecimal."""
    return f"{KEY} in [{', '.join(map(quoted, keys))}]"


def require_live(client: EngineClient, path: Path) -> int:
    generation = client.live_generation()
    if generation is None:
        raise IndexNotReadyError(f"{path}: nothing was pushed to {ENGINE} yet")
    return generation


def read_generation(client: EngineClient, generation: int) -> GenerationRecord:
    pieces = client.read_record(generation)
    where = f"{ENGINE}: generation {generation}"
    if pieces is None or not is_whole(pieces):
        raise IndexNotReadyError(f"{where} is missing or incomplete")
    return GenerationRecord.read(pieces, where)
