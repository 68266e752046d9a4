"""Client of Milvus: the collections of one index, see `aladin_index.engines.client`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from aladin_index.engines.client import (
    PARTS,
    CollectionNames,
    CollectionSchema,
    EngineFirstStage,
    EngineItem,
    EngineOptions,
    EngineQuery,
    FormCache,
    FoundItem,
)
from aladin_index.engines.milvus.collections import (
    CollectionShape,
    create_collection,
    drop,
    read_record,
    seal,
    write_record,
)
from aladin_index.engines.milvus.connection import ENGINE, ONCE, Consistency, MilvusConnection
from aladin_index.engines.milvus.index_kinds import (
    EXACT,
    GRAPH,
    check_search_params,
    index_kind,
    kind_for,
    search_params,
    widths_of,
)
from aladin_index.engines.milvus.rows import (
    EXTENTS,
    ITEM,
    KEY,
    MATCH,
    MAX_TERMS,
    MAX_TEXT_BYTES,
    TERMS,
    CollectionForm,
    batches,
    entry_of,
    expression,
    key_of,
    parts_of,
    quoted,
    row_of,
)
from aladin_index.format.layout import EngineLocation
from aladin_network.errors import EngineError
from aladin_network.types import Target

_MAX_RESULTS = 16_384  # Milvus's own limit
_NO_SUCH_ALIAS = 1600
_TERM_BYTES = 512  # `aladin_index.engines.filter_fields` makes terms of at most 280


class MilvusEngine:
    """An `EngineClient` for the collections of Milvus."""

    def __init__(self, connection: MilvusConnection, location: EngineLocation) -> None:
        """Prepare a client for the location's name; nothing is asked of Milvus yet.

        Args:
            connection: Connection to Milvus; closed together with this object.
            location: Location of the index.

        Raises:
            ConfigError: If Milvus has no such kind of index or consistency level, or the index has
                no such search parameter.
        """
        check_search_params(location.index or GRAPH, location.search_params)
        self._connection = connection
        self._location = location
        self._names = CollectionNames(location.name)
        self._consistency = Consistency(location.url, location.consistency)
        self._forms = FormCache[CollectionForm]()

    @property
    def kind(self) -> str:
        """Name of the engine."""
        return ENGINE

    @property
    def max_results(self) -> int:
        """Largest `EngineQuery.count`."""
        return _MAX_RESULTS

    def generations(self) -> list[int]:
        """List the generations in Milvus, complete or not, in ascending order."""
        names = self._connection.call(lambda client: client.list_collections(**ONCE))
        return self._names.generations_of(names)

    def live_generation(self) -> int | None:
        """Return the live generation, or None if nothing was published yet."""
        collection = self._live_collection()
        return None if collection is None else self._names.generation_of(collection)

    def make_live(self, generation: int) -> None:
        """Make a generation the live one, atomically."""
        name, collection = self._names.name, self._names.of(generation, "record")

        def point(client: Any) -> None:
            if self._live_collection() is None:
                client.create_alias(collection, name, **ONCE)
            else:
                client.alter_alias(collection, name, **ONCE)

        self._connection.call(point)

    def drop_generation(self, generation: int) -> None:
        """Remove a generation that is not live; a missing one is not an error."""
        if self.live_generation() == generation:
            name = self._names.name
            raise EngineError(ENGINE, f"generation {generation} of {name!r} is live")
        for part in PARTS:
            drop(self._connection, self._names.of(generation, part))
            self._forms.forget(self._names.of(generation, part))

    def write_record(self, generation: int, record: Mapping[str, bytes]) -> None:
        """Store a generation's record, replacing the previous one."""
        write_record(self._connection, self._names.of(generation, "record"), record)

    def read_record(self, generation: int) -> dict[str, bytes] | None:
        """Return a generation's record, or None if it has none."""
        return read_record(self._connection, self._names.of(generation, "record"))

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
            index_params=kind.build(schema.count) | (of_index if name == asked else {}),
            description=form.description,
            shards=self._location.shards,
            replicas=self._location.replicas,
        )
        create_collection(self._connection, self._names.of(generation, target), shape)

    def open_collection(self, generation: int, target: Target) -> None:
        """Index a collection and make it searchable; returns when both are done."""
        collection = self._names.of(generation, target)
        exact = self._form(collection).index_kind == EXACT
        seal(self._connection, collection, MATCH, exact=exact)

    def upsert(self, generation: int, target: Target, entries: Sequence[EngineItem]) -> None:
        """Insert items, replacing those with the same ids; durable on return."""
        collection = self._names.of(generation, target)
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
        collection = self._names.of(generation, target)
        for part in parts_of([key_of(item_id) for item_id in ids]):
            self._connection.call(
                lambda client, part=part: client.delete(collection, filter=_one_of(part), **ONCE)
            )
            self._note_write(collection)

    def count(self, generation: int, target: Target) -> int:
        """Return the number of items, all acknowledged changes included."""
        collection = self._names.of(generation, target)
        rows = self._connection.call(
            lambda client: client.query(
                collection, output_fields=["count(*)"], consistency_level="Strong", **ONCE
            )
        )
        return int(rows[0]["count(*)"])

    def first_stage(self, generation: int, target: Target) -> EngineFirstStage:
        """Return how a collection is searched."""
        name = self._form(self._names.of(generation, target)).index_kind
        return EngineFirstStage(name, widths_of(index_kind(name), self._location.search_params))

    def search(self, query: EngineQuery) -> list[FoundItem]:
        """Find the nearest items of a query, best first, see `EngineClient`.

        Tokens of more items than one message takes are omitted; `fetch` returns them.
        """
        collection = self._names.of(query.generation, query.target)
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
        collection = self._names.of(generation, target)
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
        """Close the connections."""
        self._connection.close()

    def _live_collection(self) -> str | None:
        """Return the collection of the alias, or None if there is no alias."""
        name, refused = self._names.name, self._connection.pymilvus.MilvusException

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

    def _form(self, collection: str) -> CollectionForm:
        """Return the form of a collection, which never changes."""

        def read() -> CollectionForm:
            described = self._connection.call(
                lambda client: client.describe_collection(collection, **ONCE)
            )
            return CollectionForm.read(described["description"])

        return self._forms.get(collection, read)


def _one_of(keys: Sequence[str]) -> str:
    """Return the expression for rows with one of some keys, which are hexadecimal."""
    return f"{KEY} in [{', '.join(map(quoted, keys))}]"


def connect_milvus(location: EngineLocation, options: EngineOptions) -> MilvusEngine:
    """Create a client; Milvus need not respond yet.

    Raises:
        ConfigError: If pymilvus is not installed, or Milvus has no such option.
    """
    connection = MilvusConnection(location.url, options.token, options.timeout_s, options.retries)
    return MilvusEngine(connection, location)
