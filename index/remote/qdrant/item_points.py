"""Items as points of Qdrant, and back.

In the payload `id` is the user's own id, for those who look at the engine's own pages; `item` is
all that is kept of the item, as a text, so that it comes back as it was. What filters look at
stands beside it. `packed` are the tokens in their stored form: the re-ranker and the evidence read
these, so that their scores are those of an index of files.
"""

from __future__ import annotations

import base64
import uuid
from typing import Any

import numpy as np

from index.remote.entry import Entry, FoundEntry
from index.remote.item_text import item_from_text, item_text
from index.remote.qdrant.conditions import filtered_payload
from index.remote.qdrant.point_store import Point, ScoredPoint
from index.remote.token_bytes import token_bytes, tokens_of
from index.tokens.codec import TokenCodec

ID, ITEM, PACKED = "id", "item", "packed"
# Qdrant's own keys are numbers or UUIDs; this one makes a UUID of any id, always the same.
_IDS = uuid.UUID("5d2f1c1e-6f0c-5a37-9d5e-3b1f6b6f2a10")


def key_of(item_id: str) -> str:
    """Return the key under which an item is kept."""
    return str(uuid.uuid5(_IDS, item_id))


def point_of(entry: Entry, codec: TokenCodec, *, with_vectors: bool) -> Point:
    """Make a point of an item with its embedding and tokens.

    Args:
        entry: with its embedding and its tokens.
        codec: that packed the tokens.
        with_vectors: keep the tokens as vectors, too.
    """
    assert entry.embedding is not None
    assert entry.tokens is not None
    payload: dict[str, Any] = {
        ID: entry.item.id,
        ITEM: item_text(entry.item),
        PACKED: base64.b64encode(token_bytes(entry.tokens)).decode("ascii"),
        **filtered_payload(entry.item.metadata),
    }
    # A multivector of no vectors is none.
    tokens = codec.unpack(entry.tokens) if with_vectors and entry.tokens.count else None
    return Point(key_of(entry.item.id), payload, entry.embedding, tokens)


def entry_of(point: Point, codec: TokenCodec) -> Entry:
    """Read the item of a point; tokens that were not asked for are None."""
    packed = point.payload.get(PACKED)
    tokens = None if packed is None else tokens_of(base64.b64decode(packed), codec)
    return Entry(item_from_text(point.payload[ITEM]), point.embedding, tokens)


def found_entry_of(found: ScoredPoint, codec: TokenCodec) -> FoundEntry:
    """Read the item of a point that was found."""
    entry = entry_of(Point("", found.payload), codec)
    # Qdrant calculates in float32.
    align = None if found.align is None else float(np.float32(found.align))
    return FoundEntry(entry, float(np.float32(found.match)), align)
