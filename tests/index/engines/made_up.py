"""Items to be kept in an engine."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from aladin_index.engines.rows import CollectionSchema, EngineItem
from aladin_index.items.tables import StoredItem
from aladin_index.tokens.codec import TokenCodec
from aladin_network.types import TokenDtype

EMBEDDING_DIM, TOKEN_DIM, MAX_TOKENS = 16, 8, 4


def unit(random: np.random.Generator, *shape: int) -> NDArray[np.float32]:
    """Make vectors of length 1 up."""
    vectors = random.standard_normal(shape)
    return (vectors / np.linalg.norm(vectors, axis=-1, keepdims=True)).astype(np.float32)


def entry(number: int, codec: TokenCodec, metadata: Mapping[str, Any] | None = None) -> EngineItem:
    """Make an item up with one to four tokens; the same number makes the same one."""
    random = np.random.default_rng(number)
    item = StoredItem(
        row=number,
        id=f"photo {number}/é\n'\"\\\0",
        uri=f"{number}.jpg",
        path=f"/photos/{number}.jpg",
        text=None if number % 2 else "a dog",
        image_id=None,
        width_px=30,
        height_px=40,
        metadata=dict(metadata or {"number": number, "deep": {"a": [1, None, 2.5]}}),
        offset=7 if number % 3 else 0,
        length=None if number % 3 else 99,
        boxes=bytes(range(number % 5)) or None,
    )
    tokens = unit(random, 1 + number % MAX_TOKENS, TOKEN_DIM)
    return EngineItem(item, unit(random, EMBEDDING_DIM), codec.pack(tokens))


def codec_of(dtype: TokenDtype) -> TokenCodec:
    """Make a codec for such tokens."""
    return TokenCodec.train(dtype, unit(np.random.default_rng(0), 200, TOKEN_DIM))


def schema_of(codec: TokenCodec, count: int = 20, max_tokens: int = MAX_TOKENS) -> CollectionSchema:
    """Describe a collection of such items."""
    return CollectionSchema(
        count=count,
        embedding_dim=EMBEDDING_DIM,
        token_dim=codec.dim,
        token_dtype=codec.dtype,
        max_tokens=max_tokens,
    )


def assert_same(found: EngineItem, kept: EngineItem) -> None:
    """Compare items and their tokens, bit by bit."""
    assert found.item == kept.item
    assert found.tokens is not None
    assert kept.tokens is not None
    for got, put in zip(found.tokens, kept.tokens, strict=True):
        assert (got is None) == (put is None)
        if got is not None and put is not None:
            assert got.dtype == put.dtype
            np.testing.assert_array_equal(got, put)
