"""Caches that never outgrow their limit: what gives way, what is the same, what is counted."""

from __future__ import annotations

import threading

import numpy as np
import pytest

from aladin_network.scoring.encoding import Encoding
from aladin_service.search.lru_cache import CachedEncoding, CacheKey, EncodingCache, LruCache


class Texts(LruCache[str, str]):
    """Texts, of which each character takes a byte."""

    def entry_bytes(self, key: str, entry: str) -> int:
        return len(key) + len(entry)


def test_the_least_recently_used_entry_gives_way() -> None:
    cache = Texts(30)
    for name in "abc":
        cache.put(name, name * 9)
    assert cache.get("a") == "a" * 9
    cache.put("d", "d" * 9)
    assert [name for name in "abcd" if cache.get(name) is not None] == ["a", "c", "d"]
    cache.put("e", "e" * 19)  # as large as two
    assert [name for name in "acde" if cache.get(name) is not None] == ["d", "e"]


def test_the_size_is_that_of_the_entries_and_bounded() -> None:
    cache = Texts(500)
    for number in range(1000):
        cache.put(str(number % 300), "." * (1 + number % 40))
        assert cache.size_bytes <= 500
    assert cache.size_bytes > 400
    lone = Texts(500)
    for length in (30, 2, 5):  # under one key, the last that was put stays
        lone.put("a", "." * length)
    assert lone.size_bytes == 1 + 5


def test_an_entry_larger_than_the_cache_is_not_kept_and_removes_no_other() -> None:
    cache = Texts(10)
    cache.put("a", "." * 9)
    cache.put("b", "." * 10)
    assert cache.get("a") is not None
    assert cache.get("b") is None


@pytest.mark.parametrize(("max_bytes", "is_on"), [(0, False), (1, True)])
def test_a_cache_of_no_bytes_keeps_nothing(max_bytes: int, is_on: bool) -> None:
    cache = Texts(max_bytes)
    cache.put("a", "a")
    assert cache.get("a") is None
    assert cache.is_on is is_on
    assert cache.size_bytes == 0


def test_threads_may_use_it_at_the_same_time() -> None:
    cache = Texts(100)
    wrong: list[str] = []

    def use(seed: int) -> None:
        for number in range(1000):
            value = str((number * seed) % 30)
            cache.put(value, 9 * value)
            found = cache.get(value)
            if found is not None and found != 9 * value:
                wrong.append(found)

    threads = [threading.Thread(target=use, args=(seed,)) for seed in (1, 7, 11, 13)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong
    kept = {value: cache.get(value) for value in map(str, range(30))}
    sizes = [cache.entry_bytes(value, entry) for value, entry in kept.items() if entry is not None]
    assert 0 < sum(sizes) == cache.size_bytes <= 100


def entry(tokens: int = 2, value: float = 1.0) -> CachedEncoding:
    encoding = Encoding.of_item(
        np.full(4, value, dtype=np.float32), np.ones((tokens, 3), dtype=np.float32)
    )
    return CachedEncoding(encoding, None)


def of(text: str, model_id: str = "model") -> CacheKey:
    return CacheKey.of(model_id, text)


def test_an_encoding_is_found_under_its_own_model_and_content_only() -> None:
    cache, kept = EncodingCache(10**6), entry()
    cache.put(of("a dog"), kept)
    cache.put(CacheKey.of("model", b"a photo"), kept)
    assert cache.get(of("a dog")) is cache.get(CacheKey.of("model", b"a photo")) is kept
    others = [of("A dog"), of("a dog "), of("a dog", "another"), CacheKey.of("model", b"a dog")]
    assert [cache.get(key) for key in others] == [None] * 4


def test_an_encoding_is_counted_with_its_tokens_and_its_text() -> None:
    sizes: list[int] = []
    for text, tokens in (("a", 2), ("a", 5), ("a dog", 2)):
        cache = EncodingCache(10**6)
        cache.put(of(text), entry(tokens=tokens))
        sizes.append(cache.size_bytes - (sizes[0] if sizes else 0))
    assert sizes[1:] == [3 * (3 * 4 + 1), 4 * len(" dog")]  # float32 and a bool a token
