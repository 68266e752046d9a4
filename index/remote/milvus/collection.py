"""Collections of Milvus: made, indexed, loaded and dropped."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from aladin.errors import EngineError
from index.remote.milvus.connection import ENGINE, ONCE, MilvusConnection
from index.remote.milvus.index_kinds import INDEXED_ROWS
from index.remote.milvus.rows import KEY

# A side of a billion items takes hours to be indexed; what stands still longer is told.
_INDEX_S, _LOAD_S, _FLUSH_S = 24 * 3600.0, 3600.0, 600.0
# A digest, as `index.remote.milvus.rows.key_of` makes them.
_KEY_LETTERS = 64


@dataclass(frozen=True, kw_only=True)
class CollectionShape:
    """What a collection is made of, besides its key.

    Attributes:
        fields: names and what `pymilvus` calls their type and its options.
        vector: the field that gets an index.
        index: its kind, in Milvus's words.
        index_params: of building it.
        description: of the collection.
        shards: None: the server's choice.
        replicas: in memory; None: one.
    """

    fields: Mapping[str, tuple[str, Mapping[str, Any]]]
    vector: str
    index: str
    index_params: Mapping[str, Any]
    description: str = ""
    shards: int | None = None
    replicas: int | None = None


def create_collection(connection: MilvusConnection, name: str, shape: CollectionShape) -> None:
    """Make an empty collection and have it loaded, unless it is there.

    It is loaded before it has items: so it can be counted and read at any time, and a load that
    was cut short can go on from what is there.
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


def load(connection: MilvusConnection, name: str, replicas: int | None) -> None:
    """Have a collection in the memory of the nodes that search; returns when it is."""
    number = {} if replicas is None else {"replica_number": replicas}
    connection.call(lambda client: client.load_collection(name, _async=True, **number, **ONCE))

    def is_loaded(client: Any) -> bool:
        return client.get_load_state(name, **ONCE)["state"].name == "Loaded"

    connection.wait_until(is_loaded, f"loading {name}", _LOAD_S)


def seal(connection: MilvusConnection, name: str, index: str, *, exact: bool) -> None:
    """Close the segments that are being filled; returns when the index is what is searched.

    An index that is built is not searched yet: until the nodes have loaded the closed segments,
    for which they take a minute unless they are told to, they search those that were filled by a
    coarse index of their own, which finds far less. With exact search there is none.
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


def drop(connection: MilvusConnection, name: str) -> None:
    """Remove a collection; one that is not there is no error."""
    connection.call(lambda client: client.drop_collection(name, **ONCE))


def _typed(types: Any, options: Mapping[str, Any]) -> dict[str, Any]:
    """Put the package's own types in the place of their names."""
    return {
        name: types[value] if name == "element_type" else value for name, value in options.items()
    }
