"""An engine in memory for tests: exact search, clients that share it, and calls that fail."""

from __future__ import annotations

import operator
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from aladin_index.engines.filter_fields import FilterFields, filter_fields, limit_of, terms_of
from aladin_index.engines.milvus import EngineFirstStage, EngineQuery, FoundItem
from aladin_index.engines.rows import CollectionSchema, EngineItem
from aladin_index.items.filters import And, Equal, Exists, Filter, Not, Or
from aladin_network.errors import EngineError, EngineUnavailableError
from aladin_network.types import Target

Collection = dict[str, EngineItem]
_SIGNS = {">": operator.gt, ">=": operator.ge, "<": operator.lt, "<=": operator.le}


@dataclass
class MemoryServer:
    """What all clients of one engine see; of the methods in `down` none finds it.

    Searches with one of some `widths` see few items; without any they compare with every item.
    """

    collections: dict[tuple[int, Target], Collection] = field(default_factory=dict)
    records: dict[int, dict[str, bytes]] = field(default_factory=dict)
    opened: set[tuple[int, Target]] = field(default_factory=set)
    live: int | None = None
    widths: tuple[int, ...] = ()
    down: set[str] = field(default_factory=set)
    calls: list[str] = field(default_factory=list)


class MemoryEngine:
    """An `EngineClient` of a `MemoryServer`."""

    kind = "memory"

    def __init__(self, server: MemoryServer, *, max_results: int = 1000) -> None:
        self.server = server
        self.max_results = max_results
        self.closed = False

    def generations(self) -> list[int]:
        self._call("generations")
        return sorted({*self.server.records, *(number for number, _ in self.server.collections)})

    def live_generation(self) -> int | None:
        self._call("live_generation")
        return self.server.live

    def make_live(self, generation: int) -> None:
        self._call("make_live")
        self.server.live = generation

    def drop_generation(self, generation: int) -> None:
        self._call("drop_generation")
        if generation == self.server.live:
            raise EngineError(self.kind, f"generation {generation} is live")
        self.server.records.pop(generation, None)
        for key in [key for key in self.server.collections if key[0] == generation]:
            del self.server.collections[key]

    def write_record(self, generation: int, record: Mapping[str, bytes]) -> None:
        self._call("write_record")
        self.server.records[generation] = dict(record)

    def read_record(self, generation: int) -> dict[str, bytes] | None:
        self._call("read_record")
        record = self.server.records.get(generation)
        return None if record is None else dict(record)

    def create_collection(self, generation: int, target: Target, schema: CollectionSchema) -> None:
        self._call("create_collection")
        assert schema.count >= 0
        self.server.collections.setdefault((generation, target), {})

    def open_collection(self, generation: int, target: Target) -> None:
        self._call("open_collection")
        self.server.opened.add((generation, target))

    def upsert(self, generation: int, target: Target, entries: Sequence[EngineItem]) -> None:
        self._call("upsert")
        for entry in entries:
            assert entry.embedding is not None
            assert entry.tokens is not None
            self._collection(generation, target)[entry.item.id] = entry

    def delete(self, generation: int, target: Target, ids: Sequence[str]) -> None:
        self._call("delete")
        for item_id in ids:
            self._collection(generation, target).pop(item_id, None)

    def count(self, generation: int, target: Target) -> int:
        self._call("count")
        return len(self._collection(generation, target))

    def first_stage(self, generation: int, target: Target) -> EngineFirstStage:
        self._call("first_stage")
        assert (generation, target) in self.server.collections
        return EngineFirstStage("graph" if self.server.widths else "flat", self.server.widths)

    def search(self, query: EngineQuery) -> list[FoundItem]:
        self._call("search")
        assert (query.generation, query.target) in self.server.opened
        assert query.count <= self.max_results
        found: list[FoundItem] = []
        for entry in self._collection(query.generation, query.target).values():
            if query.filter is None or passes(filter_fields(entry.item.metadata), query.filter):
                assert entry.embedding is not None
                match = float(entry.embedding @ query.embedding)
                tokens = entry.tokens if query.with_tokens else None
                found.append(FoundItem(EngineItem(entry.item, None, tokens), match))
        # Engines leave those of equal score in any order: here in the opposite of ours.
        found.sort(key=lambda each: (-each.match, -each.entry.item.row))
        if self.server.widths:
            # As coarse as can be: of the items, it sees the newest.
            assert query.width in (None, *self.server.widths)
            seen = query.width or self.server.widths[-1]
            rows = sorted(each.entry.item.row for each in found)[-seen:]
            found = [each for each in found if each.entry.item.row in rows]
        return found[: query.count]

    def fetch(
        self,
        generation: int,
        target: Target,
        ids: Sequence[str],
        *,
        with_embeddings: bool = False,
        with_tokens: bool = False,
    ) -> list[EngineItem]:
        self._call("fetch_tokens" if with_tokens else "fetch")
        collection = self._collection(generation, target)
        return [
            EngineItem(
                collection[item_id].item,
                collection[item_id].embedding if with_embeddings else None,
                collection[item_id].tokens if with_tokens else None,
            )
            for item_id in reversed(ids)
            if item_id in collection
        ]

    def check_health(self) -> None:
        self._call("check_health")

    def close(self) -> None:
        self.closed = True

    def _collection(self, generation: int, target: Target) -> Collection:
        if (generation, target) not in self.server.collections:
            raise EngineError(self.kind, f"no {target} of generation {generation}")
        return self.server.collections[generation, target]

    def _call(self, name: str) -> None:
        self.server.calls.append(name)
        if self.server.down & {name, "*"}:
            raise EngineUnavailableError(self.kind, f"no answer to {name}")


def passes(fields: FilterFields, filter: Filter) -> bool:
    """Tell whether an item passes a filter by what an engine keeps of its metadata."""
    if isinstance(filter, Not):
        return not passes(fields, filter.part)
    if isinstance(filter, And):
        return all(passes(fields, part) for part in filter.parts)
    if isinstance(filter, Or):
        return any(passes(fields, part) for part in filter.parts)
    if isinstance(filter, (Equal, Exists)):
        return bool(set(terms_of(filter)) & set(fields.terms))
    limits = [limit_of(filter.field, bound) for bound in filter.bounds]
    return all(
        limit.name in fields.extents and _SIGNS[limit.sign](fields.extents[limit.name], limit.text)
        for limit in limits
    )
