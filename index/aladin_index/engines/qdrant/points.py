"""Items as points of Qdrant, and filters on their payload in the form of its REST API.

In the payload, `id` is the user's own id, for people who use Qdrant's dashboard; `item` is the
whole item as a text, so that it can be restored exactly. The fields for filters are beside it, see
`aladin_index.engines.filter_fields`. `packed` are the tokens in their stored form: the re-ranker
and the evidence read these, so that their scores equal those of an index of files.
"""

from __future__ import annotations

import base64
import json
import uuid
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from aladin_index.engines.client import EngineItem, FoundItem
from aladin_index.engines.filter_fields import field_key, filter_fields, number_key, terms_of
from aladin_index.engines.qdrant.store import Point, ScoredPoint, TokenVectors
from aladin_index.engines.record import item_from_text, item_text, token_bytes, tokens_of
from aladin_index.items.filters import And, Bound, Equal, Exists, Filter, Not, Or, Range
from aladin_index.tokens.codec import TokenCodec
from aladin_network.errors import InputError

VALUES, NUMBERS = "values", "numbers"
# Smallest and greatest value of a field in `numbers`, as a list, and the rounding remainder of
# each.
_ENDS, _LEAST_REST, _GREATEST_REST = "ends", "least_rest", "greatest_rest"
# All integers up to this one are exact as floats, and a number that rounds to less is not changed
# by rounding.
_EXACT = 2.0**53

# Qdrant's own keys are numbers or UUIDs; this namespace derives a UUID from any id, always the
# same.
_IDS = uuid.UUID("5d2f1c1e-6f0c-5a37-9d5e-3b1f6b6f2a10")


def filtered_payload(metadata: Mapping[str, Any]) -> dict[str, Any]:
    """Return the part of a payload that filters use."""
    fields = filter_fields(metadata)
    numbers = {
        key: {
            _ENDS: sorted({extent.least.rounded, extent.greatest.rounded}),
            _LEAST_REST: extent.least.rest,
            _GREATEST_REST: extent.greatest.rest,
        }
        for key, extent in fields.numbers.items()
    }
    return {VALUES: fields.values, NUMBERS: numbers}


def number_paths(payload: Mapping[str, Any]) -> list[str]:
    """Return the paths of the numbers in a payload that ranges are compared with."""
    return [f"{NUMBERS}.{key}.{_ENDS}" for key in payload[NUMBERS]]


def conditions(filter: Filter) -> dict[str, Any]:
    """Translate a filter.

    Raises:
        InputError: If the filter compares texts by order, which Qdrant cannot do.
    """
    if isinstance(filter, And):
        return {"must": [conditions(part) for part in filter.parts]}
    if isinstance(filter, Or):
        return {"should": [conditions(part) for part in filter.parts]}
    if isinstance(filter, Not):
        return {"must_not": [conditions(filter.part)]}
    if isinstance(filter, Range):
        return {"must": [_within(filter.field, bound) for bound in filter.bounds]}
    return {"must": [_one_of(filter)]}


def _one_of(test: Equal | Exists) -> dict[str, Any]:
    return {"key": VALUES, "match": {"any": terms_of(test)}}


def _within(field: str, bound: Bound) -> dict[str, Any]:
    if bound.value.kind != "number":
        raise InputError(
            f"filter field {field!r}: {bound.comparison} takes a number in an index that Qdrant "
            f"keeps, got text"
        )
    key = number_key(bound.value.value)
    path = f"{NUMBERS}.{field_key(field)}"
    if abs(key.rounded) < _EXACT:
        return {"key": f"{path}.{_ENDS}", "range": {bound.comparison: key.rounded}}
    # If the other end has the same value, or the end in question lies beyond, the first condition
    # is already satisfied: the remainder is that of the compared end.
    beyond = bound.comparison.removesuffix("e")
    end_rest = _GREATEST_REST if beyond == "gt" else _LEAST_REST
    same = {"key": f"{path}.{_ENDS}", "range": {"gte": key.rounded, "lte": key.rounded}}
    rest = {"key": f"{path}.{end_rest}", "range": {bound.comparison: key.rest}}
    further = {"key": f"{path}.{_ENDS}", "range": {beyond: key.rounded}}
    return {"should": [further, {"must": [same, rest]}]}


ID, ITEM, PACKED = "id", "item", "packed"


def key_of(item_id: str) -> str:
    """Return the key of an item."""
    return str(uuid.uuid5(_IDS, item_id))


def point_of(entry: EngineItem, codec: TokenCodec, *, with_vectors: bool) -> Point:
    """Convert an item with its embedding and tokens to a point.

    Args:
        entry: Item with its embedding and tokens.
        codec: Codec that packed the tokens.
        with_vectors: Whether to keep the tokens as vectors, too.
    """
    assert entry.embedding is not None
    assert entry.tokens is not None
    payload: dict[str, Any] = {
        ID: entry.item.id,
        ITEM: item_text(entry.item),
        PACKED: base64.b64encode(token_bytes(entry.tokens)).decode("ascii"),
        **filtered_payload(entry.item.metadata),
    }
    # A multivector without vectors is stored as none.
    tokens = codec.unpack(entry.tokens) if with_vectors and entry.tokens.count else None
    return Point(key_of(entry.item.id), payload, entry.embedding, tokens)


def entry_of(point: Point, codec: TokenCodec) -> EngineItem:
    """Return the item of a point; tokens that were not requested are None."""
    packed = point.payload.get(PACKED)
    tokens = None if packed is None else tokens_of(base64.b64decode(packed), codec)
    return EngineItem(item_from_text(point.payload[ITEM]), point.embedding, tokens)


def found_entry_of(found: ScoredPoint, codec: TokenCodec) -> FoundItem:
    """Return the item of a point found by a search."""
    entry = entry_of(Point("", found.payload), codec)
    # Qdrant calculates in float32.
    align = None if found.align is None else float(np.float32(found.align))
    return FoundItem(entry, float(np.float32(found.match)), align)


_CODEC, _CENTROIDS = "codec", "centroids"


@dataclass(frozen=True, eq=False)
class CollectionForm:
    """Form of a collection, stored with its items; never changed.

    Attributes:
        codec: Codec of the tokens, without error feedback.
        token_vectors: How tokens are stored for MaxSim.
        indexed_paths: Payload fields that this process has had indexed; not persisted.
    """

    codec: TokenCodec
    token_vectors: TokenVectors
    indexed_paths: set[str] = field(default_factory=set[str])

    def pieces(self) -> dict[str, bytes]:
        """Serialise the form as named pieces of bytes."""
        described = {
            "dtype": self.codec.dtype,
            "dim": self.codec.dim,
            "token_vectors": self.token_vectors,
        }
        pieces = {_CODEC: json.dumps(described).encode()}
        if self.codec.centroids is not None:
            pieces[_CENTROIDS] = self.codec.centroids.astype("<f4").tobytes()
        return pieces

    @classmethod
    def of_pieces(cls, pieces: Mapping[str, bytes]) -> CollectionForm:
        """Deserialise the result of `pieces`."""
        described = json.loads(pieces[_CODEC])
        centroids = pieces.get(_CENTROIDS)
        book = None
        if centroids is not None:
            book = np.frombuffer(centroids, "<f4").reshape(-1, described["dim"])
        return cls(
            TokenCodec(described["dtype"], described["dim"], book), described["token_vectors"]
        )
