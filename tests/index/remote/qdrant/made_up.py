"""Items to be kept in Qdrant."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from index.items.tables import StoredItem
from index.remote.client import SideSchema
from index.remote.entry import Entry
from index.settings import TokenDtype
from index.tokens.codec import TokenCodec

EMBEDDING_DIM, TOKEN_DIM = 6, 8


def unit(random: np.random.Generator, *shape: int) -> NDArray[np.float32]:
    """Make vectors of length 1 up."""
    vectors = random.standard_normal(shape)
    return (vectors / np.linalg.norm(vectors, axis=-1, keepdims=True)).astype(np.float32)


def entry(number: int, codec: TokenCodec, metadata: Mapping[str, Any] | None = None) -> Entry:
    """Make an item up with one to four tokens; the same number makes the same one."""
    random = np.random.default_rng(number)
    item = StoredItem(
        number,
        f"photo {number}/é\n'\"",
        f"{number}.jpg",
        f"/photos/{number}.jpg",
        None if number % 2 else "a dog",
        None,
        30,
        40,
        dict(metadata or {"number": number, "deep": {"a": [1, None, 2.5]}}),
        7 if number % 3 else 0,
        None if number % 3 else 99,
        bytes(range(number % 5)) or None,
    )
    tokens = unit(random, 1 + number % 4, TOKEN_DIM)
    return Entry(item, unit(random, EMBEDDING_DIM), codec.pack(tokens))


def codec_of(dtype: TokenDtype) -> TokenCodec:
    """Make a codec for such tokens."""
    return TokenCodec.train(dtype, unit(np.random.default_rng(0), 200, TOKEN_DIM))


def schema_of(codec: TokenCodec, count: int = 20) -> SideSchema:
    """Describe a side of such items."""
    return SideSchema(embedding_dim=EMBEDDING_DIM, codec=codec, max_tokens=4, count=count)
