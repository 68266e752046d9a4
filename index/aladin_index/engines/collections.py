"""Collections of Milvus: created, indexed and loaded."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

from aladin_index.ann.ann_index import EXACT_UP_TO
from aladin_index.engines.connection import ENGINE, ONCE, Connection
from aladin_index.engines.rows import KEY
from aladin_network.errors import ConfigError, EngineError

Number = int | float | str

# Factor of the width for a search with a filter, because items that do not pass use up the width,
# too. If a third to a half of 5,000 captions pass, ef=128 finds 0.95 to 0.97 of the nearest 100,
# and ef=1024 more than 0.999; if a sixth or a fifth pass, 0.91 and 0.98, which no width of a graph
# exceeds. A search takes 3 ms instead of 2.
_FILTERED = 8

# For fewer items Milvus does not build the requested index, but searches a coarse one of its own,
# whose width cannot be set. Milvus calls this minSegmentNumRowsToEnableIndex.
INDEXED_ROWS = 1024


class IndexKind(NamedTuple):
    """One kind of index.

    Attributes:
        name: Milvus's.
        build: Build parameters.
        has_lists: Whether it divides the items into lists, whose number depends on that of items.
        width: Parameter that sets how many items a search examines, or None if it compares with
            every item.
        widths: Search widths worth trying, ascending.
        covers_hits: Whether the width must be at least the number of hits wanted.
    """

    name: str
    build: Mapping[str, Number] = {}
    has_lists: bool = False
    width: str | None = None
    widths: tuple[int, ...] = ()
    covers_hits: bool = False

    def build_params(self, count: int) -> dict[str, Number]:
        """Return the build parameters for a number of items."""
        # As advised for FAISS: a multiple of the root of the item count.
        lists = {"nlist": int(min(65_536, max(64, 4 * count**0.5)))} if self.has_lists else {}
        return {**self.build, **lists}


# Powers of two: each step about doubles the time of a search.
_LISTS_SEARCHED = tuple(2**power for power in range(3, 13))
_GRAPH_WIDTHS = tuple(2**power for power in range(7, 13))


def _with_lists(name: str) -> IndexKind:
    return IndexKind(name, has_lists=True, width="nprobe", widths=_LISTS_SEARCHED)


INDEX_KINDS: dict[str, IndexKind] = {
    "flat": IndexKind("FLAT"),
    "hnsw": IndexKind(
        "HNSW",
        {"M": 32, "efConstruction": 200},
        width="ef",
        widths=_GRAPH_WIDTHS,
        covers_hits=True,
    ),
    "ivf_flat": _with_lists("IVF_FLAT"),
    "ivf_sq8": _with_lists("IVF_SQ8"),
}
GRAPH, EXACT = "hnsw", "flat"


def kind_for(asked: str | None, count: int) -> str:
    """Choose the index kind of a collection."""
    if count < INDEXED_ROWS or (asked is None and count <= EXACT_UP_TO):
        return EXACT
    return asked or GRAPH


def index_kind(name: str) -> IndexKind:
    kind = INDEX_KINDS.get(name)
    if kind is None:
        raise ConfigError(f"index: expected one of {', '.join(INDEX_KINDS)}, got {name!r}")
    return kind


def check_search_params(name: str, chosen: Mapping[str, Number]) -> None:
    """Check that the index kind has these search parameters."""
    width = index_kind(name).width
    for parameter, value in chosen.items():
        if parameter != width:
            expected = "none" if width is None else f"only {width}"
            raise ConfigError(f"search_params of {name}: expected {expected}, got {parameter}")
        if not isinstance(value, int) or value < 1:
            raise ConfigError(f"{parameter}: expected a number of at least 1, got {value!r}")


def widths_of(kind: IndexKind, chosen: Mapping[str, Number]) -> tuple[int, ...]:
    """Return the widths that a search may have."""
    if kind.width is None or kind.width not in chosen:
        return kind.widths
    return (int(chosen[kind.width]),)


def search_params(
    kind: IndexKind,
    chosen: Mapping[str, Number],
    count: int,
    *,
    width: int | None,
    filtered: bool,
) -> dict[str, Any]:
    if kind.width is None:
        return {"metric_type": "IP", "params": {}}
    widths = widths_of(kind, chosen)
    if kind.width in chosen:
        looking = widths[0]
    else:
        looking = (width or widths[-1]) * (_FILTERED if filtered else 1)
    if kind.covers_hits:
        looking = max(looking, count)
    return {"metric_type": "IP", "params": {kind.width: looking}}


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
