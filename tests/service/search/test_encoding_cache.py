"""Remembered encodings: what is the same query, and how much it is counted as."""

from __future__ import annotations

import numpy as np

from aladin_network.scoring.encoding import Encoding
from aladin_service.search.lru_cache import CachedEncoding, CacheKey, EncodingCache


def entry(tokens: int = 2, value: float = 1.0) -> CachedEncoding:
    encoding = Encoding.of_item(
        np.full(4, value, dtype=np.float32), np.ones((tokens, 3), dtype=np.float32)
    )
    return CachedEncoding(encoding, None)


def of(text: str, model_id: str = "model") -> CacheKey:
    return CacheKey.of(model_id, text)


def one_entry_bytes() -> int:
    cache = EncodingCache(10**6)
    cache.put(of("a"), entry())
    return cache.size_bytes


def test_an_entry_is_found_under_its_own_model_and_content_only() -> None:
    cache = EncodingCache(10**6)
    kept = entry()
    cache.put(of("a dog"), kept)
    assert cache.get(of("a dog")) is kept
    assert cache.get(of("A dog")) is None
    assert cache.get(of("a dog ")) is None
    assert cache.get(of("a dog", "another")) is None
    assert cache.get(CacheKey.of("model", b"a dog")) is None
    cache.put(CacheKey.of("model", b"a photo"), kept)
    assert cache.get(CacheKey.of("model", b"a photo")) is kept


def test_an_entry_is_counted_with_its_tokens_and_its_text() -> None:
    longer = EncodingCache(10**6)
    longer.put(of("a"), entry(tokens=5))
    assert longer.size_bytes == one_entry_bytes() + 3 * (3 * 4 + 1)  # float32 and a bool a token
    longer.put(of("a dog"), entry())
    assert longer.size_bytes == 2 * one_entry_bytes() + 3 * (3 * 4 + 1) + 4 * len(" dog")
