"""Collections of Milvus: created, indexed and loaded."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from aladin_index.engines.connection import ENGINE, ONCE, Connection
from aladin_index.engines.index_kinds import INDEXED_ROWS
from aladin_index.engines.rows import KEY
from aladin_network.errors import EngineError

# A collection of a billion items takes hours to index; after this time it is an error.
_INDEX_S, _LOAD_S, _FLUSH_S = 24 * 3600.0, 3600.0, 600.0
# A digest, as `aladin_index.engines.rows.key_of` returns them.
_KEY_LETTERS = 64


@dataclass(frozen=True, kw_only=True)
class CollectionShape:
    """Fields and index of a collection, besides its key.

    Attributes:
        fields: Names of the fields, each with the `pymilvus` name of its type and the options of
            that type.
        vector: Name of the field that is indexed.
        index: Kind of the index, as named by Milvus.
        index_params: Parameters of building the index.
        description: Description of the collection.
        shards: Number of shards, or None for the server's default.
        replicas: Number of replicas in memory, or None for one.
    """

    fields: Mapping[str, tuple[str, Mapping[str, Any]]]
    vector: str
    index: str
    index_params: Mapping[str, Any]
    description: str = ""
    shards: int | None = None
    replicas: int | None = None


def create_collection(connection: Connection, name: str, shape: CollectionShape) -> None:
    """Create an empty collection and load it, unless it exists.

    It is loaded before it has items, so that it can be counted and read at any time, and an
    interrupted push can continue with what is there.
    """
    types, options = connection.pymilvus.DataType, dict(ONCE)
    if shape.shards is not None:
        options["num_shards"] = shape.shards

    def create(client: Any) -> None:
        if client.has_collection(name, **ONCE):
            return
        schema = client.create_schema(
            auto_id=False, enable_dynamic_field=False, description=shape.description
        )
        schema.add_field(KEY, types.VARCHAR, is_primary=True, max_length=_KEY_LETTERS)
        for field, (kind, given) in shape.fields.items():
            schema.add_field(field, types[kind], **_typed(types, given))
        client.create_collection(name, schema=schema, **options)

    def index(client: Any) -> None:
        if shape.vector in client.list_indexes(name, **ONCE):
            return
        chosen = client.prepare_index_params()
        chosen.add_index(
            shape.vector,
            index_type=shape.index,
            metric_type="IP",
            params=dict(shape.index_params),
            index_name=shape.vector,
        )
        client.create_index(name, chosen, **ONCE)

    connection.call(create)
    connection.call(index)
    load(connection, name, shape.replicas)


def load(connection: Connection, name: str, replicas: int | None) -> None:
    """Load a collection into the memory of the query nodes; returns when it is loaded."""
    number = {} if replicas is None else {"replica_number": replicas}
    connection.call(lambda client: client.load_collection(name, _async=True, **number, **ONCE))

    def is_loaded(client: Any) -> bool:
        return client.get_load_state(name, **ONCE)["state"].name == "Loaded"

    connection.wait_until(is_loaded, f"loading {name}", _LOAD_S)


def seal(connection: Connection, name: str, index: str, *, exact: bool) -> None:
    """Seal the growing segments; returns when searches use the index.

    Searches do not use a new index at once: until the nodes have loaded the sealed segments, which
    takes a minute unless requested, they search the growing ones by a coarse index of their own,
    which finds far less. Exhaustive search has no such index.
    """
    connection.call(lambda client: client.flush(name, timeout=_FLUSH_S, **ONCE))

    def is_indexed(client: Any) -> bool:
        state = client.describe_index(name, index, **ONCE)
        if state["state"] == "Failed":
            raise EngineError(ENGINE, f"{name} could not be indexed: {state.get('reason', state)}")
        return state["state"] == "Finished" and state["pending_index_rows"] == 0

    def is_taken_up(client: Any) -> bool:
        kept = {each.segment_id for each in client.list_persistent_segments(name, **ONCE)}
        loaded = {each.segment_id: each for each in client.list_loaded_segments(name, **ONCE)}
        if kept - loaded.keys():
            client.refresh_load(name, _async=True, **ONCE)
            return False
        return all(each.index_name or each.num_rows < INDEXED_ROWS for each in loaded.values())

    connection.wait_until(is_indexed, f"indexing {name}", _INDEX_S)
    if not exact:
        connection.wait_until(is_taken_up, f"loading the index of {name}", _LOAD_S)


def _typed(types: Any, options: Mapping[str, Any]) -> dict[str, Any]:
    """Replace the names of types by the package's own types."""
    return {
        name: types[value] if name == "element_type" else value for name, value in options.items()
    }
